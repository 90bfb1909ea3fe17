"""Facts about trace functions of other tools; `test_unreached_report` sets them in a job."""

import bdb
import functools
import sys
from types import FrameType

import pytest

from relay_agent.debuggee.unreached import breakpoints
from relay_agent.debuggee.unreached.breakpoints import TracerWatch, tracer_name
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


def trace(_frame: FrameType, _event: str, _argument: object) -> None:
    """Do nothing, as the trace function of a job."""


def of_module(module: str) -> object:
    """Return an object that a tool from another module would set."""
    return type("Tracer", (), {"__module__": module})()


def test_a_trace_function_is_named_by_where_it_is_defined() -> None:
    """Functions, methods and objects of other tools have a name; the debugger's, and none at all, do not."""
    assert f"{__name__}.trace" == tracer_name(functools.partial(trace))
    assert "bdb.Bdb.trace_dispatch" == tracer_name(bdb.Bdb().trace_dispatch)
    assert "coverage.tracer.Tracer" == tracer_name(of_module("coverage.tracer"))
    modules = ("pydevd", "_pydevd_bundle.pydevd_cython", "_pydevd_frame_eval.x", "relay_agent.debuggee.tracing")
    assert ["", "", "", "", ""] == [tracer_name(each) for each in (None, *map(of_module, modules))]


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
