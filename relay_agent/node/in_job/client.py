"""Process side of the connection between a process of the job and its node's agent.

A helper thread keeps the connection to the agent, and passes its requests to the functions that answer them, such as
those that start debugpy when a debugger connects, remove its tracing when the debugger has disconnected, and report the
stacks of all threads. Until a debugger connects, the thread blocks in `recv`, and debugpy is not imported. If the agent
is killed, the thread connects to the next one, which it starts if necessary.

Why a thread and not the job's own: the job may be inside C code for minutes, and must be reachable exactly then. Why
blocking `recv` and not asyncio: the job must not import an event loop, and between two requests the thread must cost
nothing. Why it never raises: a job must not end, or hang, because it could be debugged.

Its states are of three kinds. Whether a debugger can attach is `AttachState`, whose module has the table of its
transitions. Whether there is an agent now is `_connection`, and only that; `is_connected` asks the kernel, because the
thread may not have noticed an end yet. The rest are single facts, most of which become true once, by different threads:
`_leaving` (this process exits), `_connected` (the helper has no half-open descriptor), `_done` (the agent, or the
thread, has finished). They are not states of one machine: a process can exit in each state of the others.

Invariants: the registration is the first message of each connection, and holds all that the next agent must know; an
exiting process starts no agent (`_gate`); a forked child uses nothing of its parent's connection.

What is ugly and stays: `_drop_connection` replaces a lock that a thread of the parent may have held at the fork, and
`leave` waits for the gate for at most `LEAVE_TIMEOUT`, because an exit must not wait for an agent that does not start.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
from collections.abc import Callable, Mapping

from relay_agent.job.gevent_originals import keep_thread, prepare_imports, threading, time
from relay_agent.job.helper_thread import start_helper
from relay_agent.job.stderr import as_own_error, describe_exception, write_line
from relay_agent.node import protocol
from relay_agent.node.directory import NodeDirectory
from relay_agent.node.in_job import forked_imports
from relay_agent.node.in_job.attach_state import POLL_INTERVAL, AttachState, State
from relay_agent.node.in_job.connection import AgentConnection, blocked_signals
from relay_agent.node.in_job.reach_agent import connect_or_start
from relay_agent.settings.environment import LOCAL_RUN, NO_RELAY, hint_for_job
from relay_agent.settings.model import DebugSettings
from relay_agent.stacks.in_process import register_dump
from relay_core.errors import RelayDebugError

OUTPUTS = "outputs"
"""The directory, below the one in which a job was started, whose files Azure ML keeps with the run."""
PONG_TIMEOUT = 2.0
"""Seconds for an agent to answer `Ping`, after which an agent that is still connected counts as alive."""
LEAVE_TIMEOUT = 2.0
"""Maximum time in seconds that an exiting process waits for its agent to send the last bytes, because a container stops
with its job."""
START_TIME = 10.0
"""Maximum time in seconds that the job waits until its helper thread has opened its descriptors and started the agent;
usually a few milliseconds, or a tenth of a second in the first process of a node. If the machine is so busy that this
takes seconds, a program that closes all descriptors could otherwise close those that are in use for the start."""
MAX_FAILED_AGENTS = 5
"""Number of consecutive agents that may exit without having listened before the process continues without one."""
SPREAD_PER_RANK = 0.002
"""Seconds per rank of the job over which the ranks spread their reconnections, so that they do not all compete for the
lock. An attached debugger waits for the next agent, so this is as short as possible."""
MAX_SPREAD = 0.5
SHORT_LIFE = 10.0
"""Lifetime in seconds; an agent that exits sooner may have failed on its own."""
PROMPT_RESTARTS = 8
"""Number of consecutive short-lived agents that are replaced without delay; the delay then increases."""
MAX_RESTART_DELAY = 15.0


class NodeClient:
    """The registration of this process.

    Args:
        access: Settings and credentials for the agent's listener; see `relay_agent.node.in_agent.server`.
        target: The announcement of this process: port, rank, world, pid, script and so on.
        settings: The settings of the run, of which the registration contains what the agent does for the process.
        answers: Request handlers by name. Each is called in the helper thread with the arguments of the request. It
            returns the result as JSON, or a function that is called with a function which sends the result later, or
            raises RelayDebugError.
        on_failure: Called in the helper thread, with the reason, when debuggers can no longer attach.
    """

    def __init__(
        self,
        access: protocol.Access,
        target: protocol.TargetRecord,
        settings: DebugSettings,
        *,
        answers: Mapping[str, Callable[[Mapping[str, object]], object]],
        on_failure: Callable[[RelayDebugError], None] = lambda _failure: None,
    ) -> None:
        self.attaching = AttachState()
        """Whether debuggers can attach."""
        self.agent_pid = 0
        """Process id of the agent, after the registration."""
        self.connections = 0
        """Number of agents to which this process has been connected; more than one only if some were killed."""
        self.was_refused = False
        """True if the agent has refused this process; its state is then HOPELESS."""
        directory = target.get("cwd") or "."
        self._registration: protocol.Registration = {
            "register": target.copy(),
            "access": access,
            "forwards": settings.forwards,
            "event_directories": [f"{directory}/{each}" for each in settings.event_directories],
            "monitor": settings.monitor,
            "metrics": settings.metrics,
            "outputs": f"{directory}/{OUTPUTS}",
            "dump": None,
            "sources": {},
        }
        """As the next agent will receive it: with the current state and replaced sources."""
        self._answers = answers
        self._on_failure = on_failure
        self._owner = os.getpid()
        self._sending = threading.Lock()
        self._gate = threading.Lock()
        """Held while an agent is being started; acquired permanently when this process exits."""
        self._connection: AgentConnection | None = None
        self._leaving = False
        self._pong = threading.Event()
        self._done = threading.Event()
        self._connected = threading.Event()
        """Set when the helper thread has no half-open descriptors and no child process, at its first connection."""
        if LOCAL_RUN in access:
            self.attaching.report(State.UNREACHABLE, RelayDebugError(NO_RELAY))

    def start(self) -> None:
        """Register in a helper thread, and deregister when this process exits."""
        forked_imports.install()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._drop_connection)
        with blocked_signals():
            start_helper(self._live, "relay-agent")
        atexit.register(self.leave)
        # A program may begin with closing all descriptors, or with `os.wait`.
        self._connected.wait(START_TIME)

    @property
    def is_mine(self) -> bool:
        """Whether this process is the one that registered; a forked child is not."""
        return os.getpid() == self._owner

    @property
    def is_connected(self) -> bool:
        """Whether the agent is running, even if the helper thread has not noticed its exit yet."""
        with self._sending:
            return self._connection is not None and self._connection.is_open()

    def is_agent_alive(self) -> bool:
        """Return whether the agent responds: the connection to an agent being killed may stay open for a moment."""
        self._pong.clear()
        is_sent = self._send({"ping": True})
        deadline = time.monotonic() + PONG_TIMEOUT
        while is_sent and not self._pong.wait(POLL_INTERVAL) and time.monotonic() < deadline:
            is_sent = self.is_connected
        return is_sent

    def set_state(self, state: str, detail: str = "", until: float | None = None, *, place: str = "") -> None:
        """Announce a state of this process to the agent and thus to the clients; `until` is Unix time."""
        self.prepare_state(state, detail, until, place)()

    def prepare_state(
        self, state: str, detail: str = "", until: float | None = None, place: str = ""
    ) -> Callable[[], None]:
        """Return a function that announces a state without executing code in which a debugger could stop."""
        change: protocol.StateChange = {"state": state, "detail": detail, "place": place, "until": until}
        line = protocol.encode(change)

        def announce() -> None:
            self._registration["register"] = {**self._registration["register"], **change, "since": time.time()}
            self._send_line(line)

        return announce

    def source_replaced(self, file: str, digest: str) -> None:
        """Register the digest of a file whose code was replaced, with this agent and its successors."""
        self._registration["sources"] = {**self._registration["sources"], file: digest}

    def leave(self) -> None:
        """Deregister, and wait until the agent has delivered the last bytes; in a forked child, do nothing.

        Ctrl-C ends the wait.
        """
        if not self.is_mine or self._leaving:
            return
        self._leaving = True
        with contextlib.suppress(KeyboardInterrupt):
            self._gate.acquire(timeout=LEAVE_TIMEOUT)  # lets a start in progress complete, and prevents any other
            if self._send({"leave": True, "error": _uncaught()}):
                self._done.wait(LEAVE_TIMEOUT)

    # The helper thread:

    def _live(self) -> None:
        try:
            failed = short = 0
            while failed < MAX_FAILED_AGENTS:
                joined = time.monotonic()
                has_listened = self._serve(NodeDirectory.of(self._registration["access"]))
                if self.attaching.state is State.HOPELESS or self._leaving:
                    return
                failed = 0 if has_listened else failed + 1
                short = short + 1 if time.monotonic() - joined < SHORT_LIFE else 0
                # Without `random`: the job may have seeded its generator, or have a file of that name.
                time.sleep(self._max_delay(short) * os.urandom(1)[0] / 255)
            self._give_up(RelayDebugError("the node's agent process exited repeatedly"))
        except BaseException as error:  # noqa: BLE001 - also SystemExit of a module of the job that hides one of ours
            self._give_up(as_own_error(error))
        finally:
            self._connected.set()
            self._done.set()
            keep_thread()

    def _max_delay(self, short: int) -> float:
        """Return the longest delay before the next agent, after this number of consecutive short-lived agents."""
        spread = min(MAX_SPREAD, SPREAD_PER_RANK * (self._registration["register"].get("world") or 1))
        return min(MAX_RESTART_DELAY, spread + 0.1 * max(0, short - PROMPT_RESTARTS) ** 2)

    def _serve(self, directory: NodeDirectory) -> bool:
        """Register with one agent, and handle its messages until it exits; return whether it has listened."""
        has_listened = False
        with contextlib.closing(connect_or_start(directory, self._gate)) as connection:
            self._registration["dump"] = _register_dump(directory)
            with self._sending:  # the registration must be the first message
                if not connection.send(protocol.encode(self._registration)):
                    return False  # the agent was killed before it accepted the connection
                self._connection = connection
                self.connections += 1
            self._connected.set()
            self._end_lost_debugging()
            try:
                for line in connection.lines():
                    message = protocol.decode(line)
                    has_listened = has_listened or "listening" in message
                    self._receive(message)
            finally:
                with self._sending:
                    self._connection = None
        return has_listened

    def _end_lost_debugging(self) -> None:
        """Restore speed and timeouts if the agent was killed while a rank was held, and so could not request that."""
        if self.agent_pid:
            self._answer({"ask": "release", "id": 0, "body": {}})
            self._answer({"ask": "timeouts", "id": 0, "body": {"held": False}})

    def _receive(self, message: protocol.Message) -> None:
        if "ask" in message:
            self._answer(message)
        elif "registered" in message:
            self.agent_pid = int(message.get("agent", 0))
            self.attaching.report(State.REGISTERED)
        elif "listening" in message:
            self.attaching.report(State.LISTENING)
        elif "unreachable" in message:
            self.attaching.report(State.UNREACHABLE, _error(message["unreachable"], message))
        elif "refused" in message or "failed" in message:
            self.was_refused = "refused" in message
            sentence = message["refused"] if "refused" in message else message["failed"]
            self._give_up(_error(sentence, message))
        elif "notice" in message:
            write_line(message["notice"])
        elif "pong" in message:
            self._pong.set()
        elif "done" in message:
            self._done.set()

    def _answer(self, message: protocol.Ask) -> None:
        number, handle = message["id"], self._answers.get(message["ask"])

        def respond(result: object) -> None:
            self._send({"answer": number, "result": result})

        try:
            prepare_imports()  # a request may start debugpy
            if handle is None:
                raise RelayDebugError("this process does not support the request")
            result = handle(message.get("body", {}))
            if callable(result):
                result(respond)
            else:
                respond(result)
        except BaseException as error:  # noqa: BLE001 - as in `_live`; the agent waits for an answer
            failure = as_own_error(error)
            self._send({"answer": number, "error": failure.sentence, "hint": failure.hint})

    def _give_up(self, failure: RelayDebugError) -> None:
        self._on_failure(failure)
        self.attaching.report(State.HOPELESS, failure)

    def _send(self, message: protocol.Message) -> bool:
        return self._send_line(protocol.encode(message))

    def _send_line(self, line: bytes) -> bool:
        """Send a message if an agent is connected; a later agent receives the current state with the registration."""
        with self._sending:
            return self._connection is not None and self._connection.send(line)

    def _drop_connection(self) -> None:
        """Close the parent's connection in a forked child, so that the connection ends when the parent exits."""
        connection, self._connection = self._connection, None
        self._sending = threading.Lock()
        if connection is not None:
            connection.close()


def _error(sentence: str, message: protocol.Message) -> RelayDebugError:
    return RelayDebugError(sentence, hint=hint_for_job(str(message.get("hint", "")), os.environ))


def _uncaught() -> str:
    """Return the uncaught exception that is ending this process, in one line, or ""."""
    error = getattr(sys, "last_value", None)  # set by Python before it prints the traceback
    return "" if error is None else describe_exception(error)


def _register_dump(directory: NodeDirectory) -> protocol.DumpRecord | None:
    """Let the agent request this process's stacks by signal, even while C code holds the GIL; None if impossible."""
    path = directory.root / f"{directory.name}-{os.getpid()}.stacks"
    try:
        number = register_dump(path)
    except (OSError, RuntimeError, ValueError):  # disk full, or the job has closed a file that faulthandler needs
        return None
    return None if number is None else {"path": str(path), "signal": number}
