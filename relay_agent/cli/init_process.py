"""`relay-agent run` as the init process of a container: the command becomes a child, whose status it exits with.

Orphans become children of the init process, or of a subreaper (prctl(2)), among them this node's agent. If the command
took the place of such a process, it could wait for all its children and would wait for the agent, which waits for it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import warnings
from typing import NoReturn

_PR_GET_CHILD_SUBREAPER = 37
_TERMINAL = frozenset({signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP, signal.SIGWINCH})
_SI_KERNEL = 0x80
"""Signals with this code come from the terminal, which sends them to the child as well (sigaction(2))."""


def remain_init_process() -> None:
    """Return in a child process if this process receives orphans; here, wait for the child and exit as it does.

    If no child can be started, because the limit of processes is reached, return here: the command still runs.
    """
    if not _receives_orphans():
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    of_command = signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # if it is ignored, nobody can wait for a child
    child = 0
    with warnings.catch_warnings(), contextlib.suppress(OSError):
        warnings.simplefilter("ignore")  # Python 3.12 and later warn if a package has started a thread at start-up
        child = os.fork()
    if child:
        _supervise(child)
    signal.signal(signal.SIGCHLD, of_command)  # the command inherits it
    signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _receives_orphans() -> bool:
    if os.getpid() == 1:
        return True
    is_subreaper = ctypes.c_int(0)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(is_subreaper), 0, 0, 0)
    return bool(is_subreaper.value)


def _supervise(child: int) -> NoReturn:
    """Pass signals on to the child, and remove orphans that have exited, until the child exits."""
    while True:
        received = signal.sigwaitinfo(signal.valid_signals())
        is_typed = received.si_code == _SI_KERNEL and received.si_signo in _TERMINAL
        if received.si_signo != signal.SIGCHLD and not is_typed:
            with contextlib.suppress(PermissionError):  # the command has changed its user, as sudo does
                os.kill(child, received.si_signo)
        ended = -1
        while ended:
            ended, status = os.waitpid(-1, os.WNOHANG)
            if ended == child:
                code = os.waitstatus_to_exitcode(status)
                os._exit(code if code >= 0 else 128 - code)
