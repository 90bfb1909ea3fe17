"""Facts about the threads that a debugger has stopped."""

import pytest

from tests.support.jobs.processes import run_job

pytestmark = pytest.mark.job

PROGRAM = """
import threading
from relay_agent.stacks.stopped import stopped_threads
ended = threading.Event()
other = threading.Thread(target=ended.wait)
other.start()
{before}
print(stopped_threads() == {expected})
ended.set()
"""
SUSPEND = """
import debugpy._vendored.force_pydevd
from _pydevd_bundle.pydevd_additional_thread_info import set_additional_thread_info
from _pydevd_bundle.pydevd_constants import STATE_SUSPEND
set_additional_thread_info(threading.main_thread())
set_additional_thread_info(other).pydev_state = STATE_SUSPEND
"""


async def test_thread_at_a_breakpoint() -> None:
    """Only the threads that pydevd has marked as suspended are stopped."""
    status, lines, _ = await run_job(PROGRAM.format(before=SUSPEND, expected="{other.ident: False}"))
    assert (0, ["True"]) == (status, lines)


async def test_process_without_a_debugger() -> None:
    """In a process that nobody debugs no thread is stopped, and pydevd is not imported."""
    code = PROGRAM.format(before="", expected='{} and not [name for name in sys.modules if "pydevd" in name]')
    status, lines, _ = await run_job(code)
    assert (0, ["True"]) == (status, lines)
