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


@pytest.mark.parametrize("name", ["agent", "client", "server"])
@pytest.mark.parametrize("handler", ["signal.default_int_handler", "signal.SIG_IGN", "print"])
def test_the_signal_handler_of_a_program(name: str, handler: str) -> None:
    """The program has the handler with which it was started; only Python's own is replaced during the imports."""
    code = f"""
import importlib.machinery, signal, sys
from relay_core.program import start

class Program:
    def find_spec(name, path=None, target=None):
        return importlib.machinery.ModuleSpec(name, Program) if name == "relay_{name}.cli" else None
    def create_module(spec):
        print(signal.getsignal(signal.SIGINT) is (signal.SIG_DFL if is_own else {handler}))
    def exec_module(module):
        module.run = lambda: print(signal.getsignal(signal.SIGINT) is {handler})

is_own = {handler} is signal.default_int_handler
signal.signal(signal.SIGINT, {handler})
sys.meta_path.insert(0, Program)
start.{name}()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (0, "True\nTrue\n", "") == (done.returncode, done.stdout, done.stderr)
