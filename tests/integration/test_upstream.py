"""Facts about debugpy without relay-debug: each problem that docs/upstream.md reports is still there."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.machine.deadline import DEADLINE

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/upstream.md").read_text()
SCRIPTS = sorted(path for path in (ROOT / "docs/upstream").glob("*.py") if path.name != "session.py")
VARYING = re.compile(r"^(debugpy|the main thread) .*\n", re.MULTILINE)
NUMBER = re.compile(r"\b[0-9]+(?:\.[0-9]+)?\b")

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the scripts find the adapter in /proc")


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_the_problem_is_there(script: Path) -> None:
    """The script prints what the page shows, up to figures; if the problem is gone, its patch can leave."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("RELAY_", "PYTHONPATH"))}
    done = subprocess.run(
        [sys.executable, script], env=environment, capture_output=True, text=True, timeout=4 * DEADLINE, check=False
    )
    _, shown = PAGE.split(f"$ python {script.name}\n")
    assert outline(shown.partition("```")[0]) == outline(done.stdout), done.stderr
    assert done.stdout.endswith("the problem is there\n")


def outline(output: str) -> str:
    """Return an output without figures, and without what depends on the version of Python."""
    return NUMBER.sub("N", VARYING.sub("", output))
