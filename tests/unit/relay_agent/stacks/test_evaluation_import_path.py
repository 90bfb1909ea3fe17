"""Facts about expressions in a job whose import path begins with a directory of the project."""

import subprocess
import sys
from pathlib import Path

CODE = """
import sys
import relay_agent.api
for name in ("contextvars", "queue", "symtable"):
    sys.modules.pop(name, None)
sys.path.insert(0, sys.argv[1])
from relay_agent.stacks import evaluation
from relay_agent.values.deadline import call_within
print(call_within(3600, lambda: 6 * 7), sorted(evaluation._names_in("a + (lambda b: b + c)(d)")))
import queue
print(queue.OWN)
"""


def test_files_with_names_of_the_standard_library(tmp_path: Path) -> None:
    """No file of the project is executed when a value is computed, and the job still imports its own."""
    for name in ("contextvars", "queue", "symtable"):
        (tmp_path / f"{name}.py").write_text("import sys\nprint('executed', __name__)\nOWN = 'of the project'\n")
    done = subprocess.run([sys.executable, "-c", CODE, str(tmp_path)], capture_output=True, text=True, check=False)
    assert ("42 ['a', 'c', 'd']\nexecuted queue\nof the project\n", "") == (done.stdout, done.stderr)
