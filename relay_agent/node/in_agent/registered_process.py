"""One process that has registered with the node's agent, and what the agent requests from it."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from relay_agent.agent.targets import TargetGone
from relay_agent.monitor.readings import AllocatorReading, MonitorSettings
from relay_agent.node.in_agent.other_process import ProgramImage, descends_from, read_status
from relay_agent.node.protocol import Answer, Message, Registration, StateChange, encode
from relay_agent.stacks.out_of_process import Dump, stacks_from_outside
from relay_core import records
from relay_core.agent_api.announcement import State, TargetInfo
from relay_core.agent_api.push import Pushed
from relay_core.agent_api.questions import NO_ANSWER, Question, ReadStacks, Reply
from relay_core.agent_api.stacks import ProcessStacks
from relay_core.compat import TIMEOUT_ERRORS, timeout
from relay_core.errors import ConnectionLost, RelayDebugError
from relay_core.layers.stop_observer import Place
from relay_core.net.tasks import first_completed
from relay_core.records import parse, parse_or_none

logger = logging.getLogger(__name__)

ARM_TIMEOUT = 30.0
"""Timeout in seconds for a process to start debugpy, which usually takes 0.2 s, but longer while C code is holding the
GIL."""
DEBUGGER_END_TIMEOUT = 3.0
"""Seconds for debugpy's adapter to send the last output of a process that has exited and to end the session; the
adapter usually needs less than a second."""
CHECK_TIMEOUT = 5.0
"""Timeout in seconds for an answer from a process that is running Python code."""
SILENCE = 10.0
"""Seconds without an answer after which a process is not asked to evaluate anything: it is stopped, or C code is
holding the GIL. Otherwise, a comparison would wait a minute for it."""
ALLOCATOR_PATIENCE = 3600.0
"""Seconds after which a process that did not answer is asked again; no sample waits that long."""
BUSY = {State.WAITING, State.CRASHED}
"""States in which a process waits for a debugger."""
IDLE_INTERVAL = 0.1
"""Seconds between two looks at whether a launcher is idle."""
TIMEOUTS = -1
"""The number of the request `timeouts`, for whose answer nobody waits."""
MAX_UNREAD = 8 * 1024 * 1024
"""Bytes that wait for a process that reads nothing, for example because C code is holding the GIL: two of the largest
requests, which push files. They are far more than the other requests of a day."""


class NoAnswer(ConnectionLost):
    """A process did not answer in time; it may be stuck in C code."""


class RegisteredProcess:
    """One registered process.

    Args:
        writer: The connection to the process.
        pid: Its process id in the agent's pid namespace.
        registration: Its first message.
    """

    dap_only = True
    is_own = True

    def __init__(self, writer: asyncio.StreamWriter, pid: int, registration: Registration) -> None:
        record, dump = registration["register"], registration.get("dump")
        self.pid = pid
        self.sources = dict(registration.get("sources") or {})
        """Digests of the files whose code was replaced, by path."""
        info = parse_or_none(TargetInfo, record) or TargetInfo(record["port"])
        self.info = replace(info, pid=pid, pushes=len(self.sources))
        """What the agent announces about the process."""
        self.logical_port = info.port
        """The number for this process in `--ports` and launch.json."""
        self.label = f"pid {pid}, {info.script}" if info.script else f"pid {pid}"
        """Its name in messages to users."""
        self.own_pid = record.get("pid", pid)
        """Its process id in its own pid namespace."""
        self.registered_pids: Callable[[], list[int]] = lambda: [self.own_pid]
        """Returns `own_pid` of all processes of the node."""
        self.node_rank = record.get("node_rank")
        self.run = record.get("run") or ""
        self.access = registration.get("access", {})
        """Settings for the agent's listener."""
        self.monitor = MonitorSettings.of(registration)
        """Settings for the monitor, if the process requests it."""
        self.forwards = [port for port in registration.get("forwards", []) if isinstance(port, int)]
        self.event_directories = [str(each) for each in registration.get("event_directories", [])]
        """Directories whose TensorBoard event files clients may read."""
        self.dump = Dump(Path(dump["path"]), dump["signal"]) if dump else None
        """How to request its stacks by signal, if possible."""
        self.is_exiting = False
        """True once the process has sent `Leave`."""
        self.image = ProgramImage(pid)
        """The program that it runs."""
        self.is_launched = bool(record.get("launched"))
        """Whether a launcher has given it its own rank."""
        self.awaits_crash = bool(record.get("on_crash"))
        """Whether it would be held at an uncaught exception and has not been held yet."""
        self.was_displaced = False
        """True once a rank that it has started has its port."""
        self._is_attached = False
        self.was_debugged = False
        """True once a debugger has attached to the process, or tried to."""
        self._is_job_held = False
        """Whether a rank of its job is held, as last sent to it."""
        self._writer = writer
        self._pending: dict[int, asyncio.Future[Answer]] = {}
        self._numbers = itertools.count(1)
        self._has_left = asyncio.Event()

    def __str__(self) -> str:
        return f"{self.logical_port} ({self.label})"

    def describe(self) -> TargetInfo:
        """Return what the agent announces about the process."""
        return self.info

    def set_state(self, change: StateChange) -> None:
        """Update the announcement with a state that the process has sent."""
        self.awaits_crash = self.awaits_crash and change["state"] != State.CRASHED.value
        self.info = replace(
            self.info,
            state=State(change["state"]),
            detail=change.get("detail", ""),
            place=change.get("place", ""),
            until=change.get("until"),
            since=time.time(),
            resumed_since=None,
        )

    async def locate(self) -> tuple[str, int]:
        """Have the process start debugpy, or resume tracing, and return the address that debugpy is listening on.

        Raises:
            RelayDebugError: debugpy did not start, or the process did not answer.
        """
        self.was_debugged = self._is_attached = True
        port: int = await self.ask("arm", {"registered": self.registered_pids()}, within=ARM_TIMEOUT)
        return "127.0.0.1", port

    async def connect_to(self, port: int) -> None:
        """Have the process's debugger connect to a port of this machine.

        Raises:
            RelayDebugError: the process could not connect, or did not answer.
        """
        self.was_debugged = self._is_attached = True
        await self.ask("connect", {"port": port, "registered": self.registered_pids()}, within=ARM_TIMEOUT)

    async def allocator(self) -> AllocatorReading | None:
        """Return the memory usage of torch's allocator; None if the process has not used CUDA, or cannot answer."""
        with contextlib.suppress(RelayDebugError):
            return AllocatorReading.of(await self.ask("allocator", within=ALLOCATOR_PATIENCE))
        return None

    def code_replaced(self, result: Pushed) -> None:
        """Announce the result of a push, unless the process has failed to replace its code."""
        if result.digest:
            self.sources[result.file] = result.digest
            self.info = replace(self.info, pushes=self.info.pushes + 1)

    async def reply(self, question: Question) -> Reply:
        """Return the reply of the process to a question that it answers for itself."""
        reply = Reply(self.logical_port, self.info.rank, pid=self.pid)
        within = limit = question.seconds + question.process_margin
        ends = time.monotonic() + limit
        try:
            if question.is_checked:
                # If the process is stopped or hangs in C code, do not wait for it, and do not let it evaluate an
                # expression later.
                within = min(limit, SILENCE)
                await self.ask("check", within=within)
                within = limit
            left = max(0.0, ends - time.monotonic())
            return replace(reply, answer=await self.ask(question.name, records.encode(question), within=left))
        except RelayDebugError as error:
            why = f"{NO_ANSWER} within {within:g} s" if isinstance(error, NoAnswer) else error.sentence
            reply = replace(reply, error=why, is_silent=isinstance(error, NoAnswer | TargetGone))
        if (reading := question.stacks_instead()) is None:
            return reply
        is_own = reply.error.startswith(NO_ANSWER)  # and not of the process
        reason = f"its helper thread did not answer{reply.error.removeprefix(NO_ANSWER)}" if is_own else reply.error
        stacks = await stacks_from_outside(self.pid, reason, self.dump, locals=reading.locals)
        threads = tuple(thread for thread in stacks.threads if thread.main or not reading.main_only)
        return replace(reply, stacks=records.encode(stacks._replace(threads=threads)))

    async def is_running(self) -> bool:
        """Return whether the process answers and its debugger is not executing anything in it."""
        try:
            return not await self.ask("check", within=CHECK_TIMEOUT)
        except RelayDebugError:
            return False

    async def stopped_at(self) -> Place | None:
        """Return the innermost frame of the thread that a debugger has stopped on its own; None if there is none."""
        with contextlib.suppress(RelayDebugError):
            question = ReadStacks(seconds=CHECK_TIMEOUT)
            answer = await self.ask(question.name, records.encode(question), within=question.seconds)
            stopped = (thread for thread in parse(ProcessStacks, answer).threads if thread.stopped)
            return next((Place(*thread.frames[-1][:3]) for thread in stopped if thread.frames), None)
        return None

    def detached(self, resumed_since: float | None) -> None:
        """Let the process run at full speed again, because its debugger has disconnected."""
        self._is_attached = False
        self.info = replace(self.info, resumed_since=resumed_since or self.info.resumed_since)
        self.send({"ask": "release", "id": 0, "body": {}})

    def set_job_held(self, is_held: bool) -> None:
        """Let the process raise the timeouts of collective operations while a rank of its job is held."""
        if is_held != self._is_job_held:
            self._is_job_held = is_held
            self.send({"ask": "timeouts", "id": TIMEOUTS, "body": {"held": is_held}})

    async def ask(self, what: str, arguments: Mapping[str, object] | None = None, *, within: float) -> Any:
        """Send the process a request and return the result as JSON; see `relay_agent.debuggee.answers`.

        Raises:
            NoAnswer: the process did not answer within `within` seconds.
            TargetGone: the process has exited.
            RelayDebugError: the process answered with an error.
        """
        if self._writer.is_closing():
            raise TargetGone(self._gone())
        number = next(self._numbers)
        answered = self._pending[number] = asyncio.get_running_loop().create_future()
        self.send({"ask": what, "id": number, "body": arguments or {}})
        try:
            async with timeout(within):
                answer: Answer = await answered
        except TIMEOUT_ERRORS:
            raise NoAnswer(
                f"the process on port {self} did not answer within {within:g} s",
                hint="run 'relay-client stacks' to check whether it is stuck in C code",
            ) from None
        finally:
            self._pending.pop(number, None)
        if "error" in answer:
            raise RelayDebugError(answer["error"], hint=answer.get("hint", ""))
        if "result" not in answer:
            raise RelayDebugError(f"the process on port {self} runs another version of relay-debug")
        return answer["result"]

    def answer_received(self, answer: Answer) -> bool:
        """Complete the request that this message answers, and return whether the announcement changes.

        The message is ignored if the request has timed out.
        """
        if answer["answer"] == TIMEOUTS:
            before, self.info = self.info, replace(self.info, peer_timeout=answer.get("result"))
            return self.info != before
        pending = self._pending.get(answer["answer"])
        if pending is not None and not pending.done():
            pending.set_result(answer)
        return False

    @property
    def has_gone(self) -> bool:
        """Whether the process has exited or closed its connection, even if the agent has not handled that yet."""
        return self._writer.is_closing() or read_status(self.pid, None)[0]

    def left(self) -> None:
        """Fail all pending requests, because the process has exited or closed its connection."""
        for pending in self._pending.values():
            if not pending.done():
                pending.set_exception(TargetGone(self._gone()))
        self._has_left.set()
        self._writer.close()

    async def until_left(self, *, within: float) -> None:
        """Wait until the agent has noticed that the process has exited or closed its connection."""
        await first_completed(self._has_left.wait(), timeout=within)

    def displaces(self, holder: RegisteredProcess) -> bool:
        """Whether this process takes the port of another one: it is a rank that the other one, a launcher, started."""
        return self.is_launched and not holder.is_launched and descends_from(self.pid, holder.pid)

    @property
    def is_idle(self) -> bool:
        """Whether no debugger is attached to the process and it does not wait for one."""
        return not (self._is_attached or self.info.state in BUSY)

    async def until_idle(self) -> None:
        """Wait until the process is idle or has left."""
        while not (self._has_left.is_set() or self.is_idle):  # noqa: ASYNC110 - somebody is debugging the launcher
            await asyncio.sleep(IDLE_INTERVAL)

    async def until_ended(self) -> str:
        """Wait until `DEBUGGER_END_TIMEOUT` seconds after the process has left; return a sentence that states this.

        debugpy's adapter is a separate process. If the job's process is killed while a debugger is attaching or
        stepping, the adapter does not always end the debugger's session.
        """
        await self._has_left.wait()
        await asyncio.sleep(DEBUGGER_END_TIMEOUT)
        return self._gone()

    def _gone(self) -> str:
        """Return what is known about a process that has left: it may have closed the connection and run on."""
        has_exited, _ = read_status(self.pid, None)
        how = "exited" if has_exited else "closed its connection to the agent, or is exiting"
        return f"the process on port {self} has {how}"

    def send(self, message: Message) -> None:
        """Send the process a message, unless the connection is closed; close it if too much is unread."""
        if self._writer.is_closing():
            return
        if self._writer.transport.get_write_buffer_size() > MAX_UNREAD:
            logger.warning("port %s: closing the connection to the process, because it does not read", self)
            self._writer.transport.abort()
        else:
            self._writer.write(encode(message))
