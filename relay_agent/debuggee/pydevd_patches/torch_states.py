"""Patch that keeps torch's state of a stopped thread, which only the thread itself can read.

`relay-client eval` evaluates expressions in a helper thread, with the state of the stopped thread.
"""

from __future__ import annotations

from typing import Any

from relay_agent.debuggee.pydevd_patches.child_wait import loaded_pydevds
from relay_agent.debugpy_internals.table import TORCH_STATES

__all__ = ["install"]


def install() -> None:
    """Patch `PyDB.do_wait_suspend` in this process and its forked children."""
    if TORCH_STATES.is_available():
        for each in {module.PyDB for module in loaded_pydevds()}:
            _patch(each)


def _patch(debugger_class: Any) -> None:
    from relay_agent.values.torch_state import remembered_while_stopped  # noqa: PLC0415 - in debug runs only

    wait = debugger_class.do_wait_suspend

    def wait_with_state(debugger: Any, *arguments: Any, **named: Any) -> None:
        """Keep the state of this thread, in which pydevd waits until the thread continues."""
        with remembered_while_stopped():
            wait(debugger, *arguments, **named)

    debugger_class.do_wait_suspend = wait_with_state
