"""Facts about Python's own `sys.settrace`, and about the names of trace functions."""

import bdb
import functools
from types import FrameType

from relay_agent.job.own_settrace import IGNORE, tracer_name
from tests.support.jobs.processes import run_job

CODE = """
    import sys, types
    import debugpy

    debugpy.listen(("127.0.0.1", 0))
    from relay_agent.job.own_settrace import settrace

    print(*(type(each) is types.BuiltinFunctionType for each in (settrace, sys.settrace)))
"""


async def test_it_is_found_after_pydevd_has_replaced_it() -> None:
    """Pydevd's replacement may keep a pending call from returning; a push imports it after an attach."""
    assert (0, ["True False"]) == (await run_job(CODE))[:2]


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
    assert {""} == {tracer_name(each) for each in (None, IGNORE, *map(of_module, modules))}
