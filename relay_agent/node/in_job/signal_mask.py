"""Leaves signals to the threads of the job.

The kernel delivers a signal of a process to any thread that does not block it. A program that blocks a signal in all
its threads and waits for it (`sigwait`, `signalfd`, `signal.sigtimedwait`) would be ended by the signal, because a
thread of this package has not blocked it. So the helper thread starts with all signals blocked, and so do the threads
that it starts, which include those of debugpy. The agent and debugpy's adapter inherit the mask and reset it.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator

from relay_agent.stacks.in_process import dump_signals

__all__ = ["blocked_signals"]

_FAULTS = ("SIGBUS", "SIGFPE", "SIGILL", "SIGSEGV", "SIGSYS", "SIGTRAP")
"""Signals that the thread causes itself; while they are blocked, handlers such as faulthandler's are not called."""


@contextlib.contextmanager
def blocked_signals() -> Iterator[None]:
    """Block signals in this thread, and thus in the threads that are started in the block.

    The signals for dumps stay, so that stacks can be requested from a job that blocks all signals.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    kept = {getattr(signal, name) for name in _FAULTS if hasattr(signal, name)} | set(dump_signals())
    previous = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    try:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals() - kept)  # a signal handler may raise here
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, previous)
