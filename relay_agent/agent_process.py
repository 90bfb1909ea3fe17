"""The job's handle on its agent: a process of its own, because a breakpoint stops every thread of the job.

The job writes one JSON line to the agent's stdin (an `AgentOrder`) and keeps that pipe open: its end is how the
agent learns that the job is gone. The agent answers on its stdout, one JSON object per line:

    {"state": "listening"}                                                   the relay accepted it
    {"state": "failed", "sentence": ..., "hint": ..., "exit_code": ...}      it gave up, and why

Its stderr is the job's. The connection string goes through the pipe, never through arguments or the environment.
This module knows neither debugpy nor the relay.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import IO, Any, cast

from relay_agent.agent_order import AgentOrder
from relay_core.errors import ConfigurationError, RelayDebugError

__all__ = ["AgentProcess"]

LEAVE_TIMEOUT = 2.0
"""Seconds a job that ends gives its agent to deliver the last bytes: a container dies with its job."""


class AgentProcess:
    """One running agent.

    The process starts at once and imports what it needs while the job prepares its debugger; `attend` then tells it
    what to do. It ends when the job does, however that happens.

    Raises:
        ConfigurationError: no agent can be started here.
    """

    def __init__(self) -> None:
        self.listening = False
        """Whether the relay has accepted the agent."""
        self.ended = threading.Event()
        """Set when the process is gone; `failure` then says why, unless it was asked to go."""
        self.failure: RelayDebugError | None = None
        self._owner = os.getpid()
        self._process = _start()
        self._orders = cast("IO[bytes]", self._process.stdin)
        self._answers = cast("IO[bytes]", self._process.stdout)
        _Reader(target=self._read_answers, name="relay-agent", daemon=True).start()
        atexit.register(self._dismiss_at_exit)

    def __repr__(self) -> str:
        state = "ended" if self.ended.is_set() else "listening" if self.listening else "starting"
        return f"<AgentProcess {self._process.pid} {state}>"

    @property
    def pid(self) -> int:
        """The agent's process id."""
        return self._process.pid

    @property
    def is_mine(self) -> bool:
        """Whether this process started the agent; a forked child did not."""
        return os.getpid() == self._owner

    def attend(self, order: AgentOrder) -> None:
        """Tell the agent what to attend to; an agent that is already gone shows in `ended`."""
        with contextlib.suppress(BrokenPipeError):
            self._orders.write(order.encode())

    def dismiss(self) -> None:
        """Let the agent go; it leaves by itself and never needs to be killed.

        In a forked child this does nothing: the agent belongs to the process that started it.
        """
        if self.is_mine:
            self._orders.close()

    def _dismiss_at_exit(self) -> None:
        """Dismiss the agent and give it a moment to deliver the job's last bytes."""
        self.dismiss()
        if not self.is_mine or not self.ended.wait(LEAVE_TIMEOUT):
            self._process.returncode = 0  # it outlives this process, and Python need not warn about that

    def _read_answers(self) -> None:
        """Follow the agent until it ends, then reap it."""
        with self._answers:
            for line in self._answers:
                self._receive(line)
        status = self._process.wait()
        if status and self.failure is None:
            self.failure = RelayDebugError(f"the agent process ended with status {status}")
        self.ended.set()

    def _receive(self, line: bytes) -> None:
        """Take one answer; states of a newer agent and stray prints of a library are passed over."""
        try:
            answer: dict[str, Any] = json.loads(line)
            state = answer["state"]
        except (ValueError, KeyError, TypeError):
            return
        if state == "listening":
            self.listening = True
        elif state == "failed":
            self.failure = RelayDebugError(str(answer.get("sentence", "no reason")), hint=str(answer.get("hint", "")))


class _Reader(threading.Thread):
    """The thread that follows the agent; pydevd neither traces nor shows threads marked like this."""

    pydev_do_not_trace = True
    is_pydev_daemon_thread = True


def _start() -> subprocess.Popen[bytes]:
    if not sys.executable:
        raise ConfigurationError("this Python is embedded and has no executable that could run the agent")
    command = [sys.executable, "-m", "relay_agent", "attend"]
    try:
        with _unpatched_by_pydevd():
            return subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                bufsize=0,  # a buffer's lock, held by our daemon thread, is fatal to an interpreter that shuts down
                env=_environment(),
                start_new_session=True,
            )
    except OSError as error:
        raise ConfigurationError(f"the agent process cannot be started: {error}") from error


def _unpatched_by_pydevd() -> contextlib.AbstractContextManager[Any]:
    """Keep a debugger that is already active from making the agent a process to debug."""
    monkey = sys.modules.get("_pydev_bundle.pydev_monkey")
    return monkey.skip_subprocess_arg_patch() if monkey is not None else contextlib.nullcontext()


def _environment() -> dict[str, str]:
    """Return the job's environment, in which `-m relay_agent` finds this very package and not a file of the job."""
    environment = dict(os.environ, PYTHONSAFEPATH="1")
    root = Path(__file__).resolve().parent.parent
    if root.name not in {"site-packages", "dist-packages"}:
        inherited = environment.get("PYTHONPATH")
        environment["PYTHONPATH"] = os.pathsep.join([str(root), *([inherited] if inherited else [])])
    return environment
