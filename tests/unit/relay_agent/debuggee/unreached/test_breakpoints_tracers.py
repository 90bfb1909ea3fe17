"""Facts about trace functions of other tools; `test_unreached_report` sets them in a job."""

import sys

import pytest

from relay_agent.debuggee.unreached import breakpoints
from relay_agent.debuggee.unreached.breakpoints import TracerWatch
from tests.support.jobs.processes import run_job

WARNING = 'sys.settrace() should not be used.\nCall Location:\n  File "/job/train.py", line 12, in work\n'

LEAVING = """
    import ctypes, gc, os, threading
    from relay_agent.debuggee.unreached.breakpoints import TracerWatch

    def watch_and_leave():
        list(TracerWatch({}).lines())
        gc.collect()
        kind = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
        others.extend(kind(lambda _: print("a call that nobody made") or 0) for _ in range(100))
        os.write(released, b"x")

    others = []
    blocked, released = os.pipe()
    threading.Thread(target=watch_and_leave).start()
    os.read(blocked, 1)
    print("the job continues")
"""


def test_a_call_and_its_function_are_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a call of `sys.settrace` has set in the main thread is reported with its place, and only once."""
    names = iter(["", "tool.trace", "tool.trace", ""])
    monkeypatch.setattr(breakpoints._MainThreadProbe, "name", lambda _probe: next(names))
    warnings: dict[str, object] = {"of an earlier session": 1}
    watch = TracerWatch(warnings)
    assert ([], {}) == (list(watch.lines()), warnings)
    warnings[WARNING] = 1
    (line,) = watch.lines()
    assert line.startswith("breakpoints in the main thread are not hit: tool.trace (set in job/train.py:12) has")
    assert ([], []) == (list(watch.lines()), list(watch.lines()))


@pytest.mark.job
async def test_an_editor_leaves_while_the_main_thread_is_in_c_code() -> None:
    """The call that was scheduled there comes after the end of the watch, and does not harm the job."""
    assert (0, ["the job continues"], "") == await run_job(LEAVING)


@pytest.mark.skipif(sys.version_info < (3, 12), reason="needs sys.monitoring")
def test_a_tool_with_the_debuggers_id_is_named() -> None:
    """The tool that has the debugger's id in `sys.monitoring` is named; without a tool, the line states that."""
    monitoring = sys.monitoring  # type: ignore[attr-defined,unused-ignore]
    assert "nothing uses the debugger's tool id" in breakpoints.foreign_tool()
    monitoring.use_tool_id(monitoring.DEBUGGER_ID, "other tool")
    try:
        assert "'other tool' uses the debugger's tool id of sys.monitoring (0)" in breakpoints.foreign_tool()
    finally:
        monitoring.free_tool_id(monitoring.DEBUGGER_ID)
