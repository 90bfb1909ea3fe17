"""Facts about the start of the programs."""

import signal
import subprocess
import sys

import pytest


@pytest.mark.parametrize("name", ["agent", "client", "server"])
def test_ctrl_c_during_the_imports(name: str) -> None:
    """Ctrl-C ends a program silently before it has imported its modules."""
    code = f"""
import signal, sys

class Interrupt:
    def find_spec(name, path=None, target=None):
        if name == "argparse":
            signal.raise_signal(signal.SIGINT)

sys.modules.pop("argparse", None)
sys.meta_path.insert(0, Interrupt)
from relay_core.program import start
start.{name}()
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert (-signal.SIGINT, b"", b"") == (ended.returncode, ended.stdout, ended.stderr)
