"""Facts about running a program's main coroutine."""

import json
import subprocess
import sys

import pytest

LOOP = """
import asyncio, json, sys
if "without" in sys.argv:
    sys.modules["uvloop"] = None  # its import fails, as on a machine without it
from relay_core.program.run import run_until_stopped
async def show():
    print(json.dumps(type(asyncio.get_running_loop()).__module__.partition(".")[0]))
sys.exit(run_until_stopped(show()))
"""


def loop_of(*arguments):
    """Return the package whose event loop a program runs in."""
    done = subprocess.run([sys.executable, "-c", LOOP, *arguments], capture_output=True, check=True)
    return json.loads(done.stdout)


def test_programs_use_uvloop_where_it_is_installed():
    """The event loop is uvloop's if it can be imported."""
    pytest.importorskip("uvloop", reason="not available on this platform")
    assert "uvloop" == loop_of()


def test_programs_run_without_uvloop():
    """Without uvloop, the event loop is that of the standard library."""
    assert "asyncio" == loop_of("without")
