"""The part of the table with features that stop a thread of the job, or examine stopped threads."""

from __future__ import annotations

from relay_agent.debugpy_internals.common import DEBUGGER, ENABLE
from relay_agent.debugpy_internals.feature import Feature, Internal

__all__ = ["BREAK_HERE", "COMPILED_CALLER", "POST_MORTEM", "THREAD_STATE", "TORCH_STATES"]

UNTRACED = (
    ENABLE,
    Internal("pydevd:PyDB.set_additional_thread_info", "called", "pydevd's state of the thread", True),
    Internal("pydevd:PyDB.disable_tracing", "called", "keeps the debugger from stopping in relay_agent"),
    Internal(
        "_pydevd_bundle.pydevd_additional_thread_info:PyDBAdditionalThreadInfo.is_tracing",
        "set",
        "keeps the debugger from stopping in relay_agent",
        True,
    ),
)

BREAK_HERE = Feature(
    "`relay_agent.breakpoint()` stops one frame too deep, in relay_agent",
    Internal("pydevd:settrace", "called", "stops in a given frame"),
)
COMPILED_CALLER = Feature(
    "`relay_agent.breakpoint()` in a function that torch.compile has compiled stops in a caller of that function",
    DEBUGGER,
    Internal("pydevd:PyDB.set_suspend", "called", "marks the thread as stopped"),
    Internal("pydevd:PyDB.do_wait_suspend", "called", "stops the thread in a given frame"),
    Internal("_pydevd_bundle.pydevd_comm_constants:CMD_SET_BREAK", "read", "the reason of the stop"),
    *UNTRACED,
)
POST_MORTEM = Feature(
    "a crashed process is announced and held, but the debugger does not stop at the line that raised the exception",
    DEBUGGER,
    Internal(
        "pydevd:PyDB.break_on_uncaught_exceptions", "read", "shows whether the debugger has already stopped", True
    ),
    Internal("pydevd:PyDB.do_stop_on_unhandled_exception", "called", "stops at the exception (before 1.8.22)"),
    *UNTRACED,
)
THREAD_STATE = Feature(
    "`relay-client hang` does not show that a rank is stopped, and `relay-client eval` sees only the program's globals",
    Internal(
        "_pydevd_bundle.pydevd_additional_thread_info:PyDBAdditionalThreadInfo.pydev_state",
        "read",
        "whether a thread is stopped",
        True,
    ),
    Internal("_pydevd_bundle.pydevd_constants:STATE_SUSPEND", "read", "the state value of a stopped thread"),
    Internal("threading:Thread.stop_reason", "read", "why a thread is stopped", True),
    Internal(
        "_pydevd_bundle.pydevd_comm_constants:CMD_THREAD_SUSPEND",
        "read",
        "the reason of a thread that is stopped along with another one, or by `pause`",
    ),
)
TORCH_STATES = Feature(
    "`relay-client eval` evaluates with gradients, without autocast, and in the default stream of the first GPU",
    Internal("pydevd:PyDB.do_wait_suspend", "replaced", "reads torch's state of the stopped thread"),
)
