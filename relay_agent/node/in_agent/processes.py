"""Table of the processes that have registered with the node's agent; each is a target for clients."""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from relay_agent.agent.port_targets import PortTarget
from relay_agent.agent.targets import TargetGone
from relay_agent.collectives.ras_client import ask_ras
from relay_agent.node.protocol import (
    Access,
    Answer,
    AskFields,
    Message,
    Registration,
    StateChange,
    TargetRecord,
    encode,
)
from relay_agent.stacks.out_of_process import Dump, stacks_of
from relay_core.agent_api.announcement import AgentInfo, State, TargetInfo
from relay_core.agent_api.collectives import NodeCollectives, ProcessCollectives
from relay_core.agent_api.ending import Ending
from relay_core.agent_api.metadata import ClientStatus
from relay_core.agent_api.requests import Collectives, Digest, FileDigest, Ready, Stacks, Wake
from relay_core.agent_api.stacks import NodeStacks, ProcessStacks, ThreadStack
from relay_core.compat import TIMEOUT_ERRORS, timeout
from relay_core.errors import ConfigurationError, ConnectionLost, RelayDebugError

__all__ = ["ProcessTable", "RegisteredProcess"]

ARM_TIMEOUT = 30.0
"""Timeout in seconds for a process to start debugpy, which usually takes 0.3 s but longer while C code holds the
GIL."""
MAX_SOURCE = 4 * 1024 * 1024
"""Maximum size in bytes of a source file whose digest is computed."""
MAX_ENDINGS = 64
"""Maximum number of announced endings, of about 60 bytes each; an editor needs the one of its process within a
second."""
DEBUGGER_END_TIMEOUT = 3.0
"""Seconds for debugpy's adapter to send the last output of a process that has exited and to end the session; it usually
needs less than one."""
CHECK_TIMEOUT = 5.0
"""Timeout in seconds for the answer of a process that runs Python code."""
STACKS_TIMEOUT = 10.0
"""Timeout in seconds; `stacks_of` stops waiting earlier."""
COLLECTIVES_TIMEOUT = 1.5
"""Timeout in seconds; a process needs 60 ms to read its recorders unless C code holds the GIL."""

logger = logging.getLogger(__name__)


def file_digest(path: Path) -> FileDigest:
    """Return the digest of a regular file of at most `MAX_SOURCE` bytes."""
    try:
        if not path.is_file() or path.stat().st_size > MAX_SOURCE:
            return FileDigest()
        return FileDigest.of(path.read_bytes())
    except (OSError, ValueError):  # no permission to read it, or the path contains a zero byte
        return FileDigest()


class RegisteredProcess:
    """One registered process.

    Args:
        writer: The connection to the process.
        pid: Its process id in the agent's pid namespace.
        record: The fields of its registration.
    """

    dap_only = True
    is_own = True

    def __init__(self, writer: asyncio.StreamWriter, pid: int, record: TargetRecord) -> None:
        self.pid = pid
        self.info = replace(TargetInfo.parse(record) or TargetInfo(record["port"]), pid=pid)
        """Its announcement."""
        self.node_rank = record.get("node_rank")
        self.run = record.get("run") or ""
        self.forwards: list[int] = []
        self.dump: Dump | None = None
        """How to request its stacks by signal, if possible."""
        self._writer = writer
        self._pending: dict[int, asyncio.Future[Answer]] = {}
        self._numbers = itertools.count(1)
        self._has_exited = asyncio.Event()

    def __repr__(self) -> str:
        return f"<RegisteredProcess port {self.logical_port} pid {self.pid} {self.info.state.value}>"

    def __str__(self) -> str:
        return f"{self.logical_port} ({self.label})"

    @property
    def label(self) -> str:
        """Its name in messages to users."""
        return f"pid {self.pid}, {self.info.script}" if self.info.script else f"pid {self.pid}"

    @property
    def logical_port(self) -> int:
        """The number for this process in `--ports` and launch.json."""
        return self.info.port

    def describe(self) -> TargetInfo:
        """Return its announcement."""
        return self.info

    def set_state(self, change: StateChange) -> None:
        """Update the announcement with a state that the process has sent."""
        self.info = replace(
            self.info,
            state=State(change["state"]),
            detail=change.get("detail", ""),
            until=change.get("until"),
            since=time.time(),
        )

    async def locate(self) -> tuple[str, int]:
        """Have the process start debugpy, or resume tracing, and return the address that debugpy listens on.

        Raises:
            RelayDebugError: debugpy did not start, or the process did not answer.
        """
        answer = await self.ask("arm", within=ARM_TIMEOUT)
        return "127.0.0.1", answer["port"]

    async def connect_to(self, port: int) -> None:
        """Have the process's debugger connect to a port of this machine.

        Raises:
            RelayDebugError: the process could not connect, or did not answer.
        """
        await self.ask("connect", {"port": port}, within=ARM_TIMEOUT)

    async def stacks(self, *, with_locals: bool) -> ProcessStacks:
        """Return the stacks of all threads of the process."""

        async def ask() -> list[ThreadStack]:
            answer = await self.ask("stacks", {"locals": with_locals}, within=STACKS_TIMEOUT)
            return [ThreadStack.parse(thread) for thread in answer["threads"]]

        found = await stacks_of(self.pid, ask, self.dump, locals=with_locals)
        return found._replace(port=self.logical_port, rank=self.info.rank)

    async def collectives(self) -> ProcessCollectives:
        """Return the process groups of the process, and the stack of its main thread whatever it is doing."""

        async def not_asked_again() -> list[ThreadStack]:
            raise RelayDebugError("its helper thread did not answer")

        try:
            answer = await self.ask("collectives", within=COLLECTIVES_TIMEOUT)
            found = ProcessCollectives.parse(answer["collectives"])
        except RelayDebugError as error:
            timed_out = isinstance(error, ConnectionLost) and not isinstance(error, TargetGone)
            stacks = await stacks_of(self.pid, not_asked_again, self.dump)
            main = tuple(thread for thread in stacks.threads if thread.main)
            found = ProcessCollectives(
                stacks=stacks._replace(threads=main),
                error=f"has not answered for {COLLECTIVES_TIMEOUT:g} s" if timed_out else f"failed: {error.sentence}",
            )
        stacks = found.stacks._replace(port=self.logical_port, rank=self.info.rank, pid=self.pid)
        return found._replace(port=self.logical_port, stacks=stacks)

    async def is_running(self) -> bool:
        """Return whether the process answers and its debugger executes nothing in it."""
        try:
            return not (await self.ask("check", within=CHECK_TIMEOUT)).get("busy", True)
        except RelayDebugError:
            return False

    def detached(self) -> None:
        """Let the process run at full speed again, because its debugger has disconnected."""
        self.send({"ask": "release", "id": 0})

    async def ask(self, what: str, arguments: AskFields | None = None, *, within: float) -> Answer:
        """Send the process a request and return its answer.

        Raises:
            ConnectionLost: the process has exited, or did not answer within `within` seconds.
            RelayDebugError: the process answered with an error.
        """
        if self._writer.is_closing():
            raise TargetGone(f"{self} has exited")
        number = next(self._numbers)
        answered = self._pending[number] = asyncio.get_running_loop().create_future()
        self.send({"ask": what, "id": number, **(arguments or AskFields())})
        try:
            async with timeout(within):
                answer: Answer = await answered
        except TIMEOUT_ERRORS:
            raise ConnectionLost(
                f"{self} did not answer within {within:g} s",
                hint="it may be stuck in C code; see 'relay-client stacks'",
            ) from None
        finally:
            self._pending.pop(number, None)
        if "error" in answer:
            raise RelayDebugError(answer["error"], hint=answer.get("hint", ""))
        return answer

    def answer_received(self, answer: Answer) -> None:
        """Complete the request that this message answers; ignore the message if the request has timed out."""
        pending = self._pending.get(answer["answer"])
        if pending is not None and not pending.done():
            pending.set_result(answer)

    def exited(self) -> None:
        """Fail all pending requests, because the process has exited."""
        for pending in self._pending.values():
            if not pending.done():
                pending.set_exception(TargetGone(f"{self} has exited"))
        self._has_exited.set()
        self._writer.close()

    async def until_ended(self) -> str:
        """Return that the process has exited, `DEBUGGER_END_TIMEOUT` seconds later.

        debugpy's adapter is a separate process. If the job's process is killed while a debugger attaches or steps, the
        adapter does not always end the debugger's session.
        """
        await self._has_exited.wait()
        await asyncio.sleep(DEBUGGER_END_TIMEOUT)
        return f"{self} has exited"

    def send(self, message: Message) -> None:
        """Send the process a message, unless the connection is closed."""
        if not self._writer.is_closing():
            self._writer.write(encode(message))


class ProcessTable:
    """All registered processes of the node; the agent's `TargetProvider`."""

    def __init__(self) -> None:
        self.on_change: Callable[[], None] = lambda: None
        """Called when the announcement has changed."""
        self.any = asyncio.Event()
        """Set when the first process has registered; `access` then has its settings."""
        self.none_left = asyncio.Event()
        """Set when the last process has left."""
        self.access: Access = {}
        self._processes: dict[int, RegisteredProcess] = {}
        self._leaving: set[RegisteredProcess] = set()
        """Processes without a port whose exit status is not known yet."""
        self._endings: dict[int, Ending] = {}
        """The last ending of each port, the oldest first."""
        self._listener_state: Message | None = None

    def __repr__(self) -> str:
        return f"<ProcessTable {sorted(self._processes)}>"

    def __len__(self) -> int:
        return len(self._processes)

    # For the agent, as a TargetProvider:

    def find(self, port: int) -> RegisteredProcess | PortTarget | None:
        """Return the process with this logical port, or a forwarded port that a process has registered."""
        if port not in self._processes and port in self._forwards():
            return PortTarget(port, port)
        return self._processes.get(port)

    def targets(self) -> list[RegisteredProcess]:
        """Return the processes, by port."""
        return [process for _, process in sorted(self._processes.items())]

    def describe(self, agent: AgentInfo) -> AgentInfo:
        """Return the announcement with the forwards, node rank and run of the processes added."""
        first = next(iter(self._processes.values()), None)
        return replace(
            agent,
            forwards=tuple(sorted(self._forwards())),
            endings=tuple(self._endings.values()),
            node_rank=first.node_rank if first else None,
            run=first.run if first else "",
        )

    def _forwards(self) -> set[int]:
        return {port for process in self._processes.values() for port in process.forwards}

    async def answer(
        self, request: Wake | Stacks | Collectives | Digest
    ) -> Ready | NodeStacks | NodeCollectives | FileDigest:
        """Start debugpy in a process, collect facts about all processes, or return the digest of a file."""
        if isinstance(request, Collectives):
            reports, ras = await asyncio.gather(
                asyncio.gather(*(process.collectives() for process in self.targets())), ask_ras(os.environ)
            )
            return NodeCollectives(tuple(reports), ras)
        if isinstance(request, Stacks):
            responses = (process.stacks(with_locals=request.locals) for process in self.targets())
            return NodeStacks(tuple(await asyncio.gather(*responses)))
        process = self._processes.get(request.port)
        if process is None:
            raise ConfigurationError(f"no process here has port {request.port}")
        if isinstance(request, Digest):
            return await asyncio.to_thread(file_digest, Path(process.info.cwd or "/", request.path))
        await process.locate()
        return Ready()

    def status_received(self, status: ClientStatus) -> None:
        """Write the conflicts that a client reports (two agents claim one port) to the job's log."""
        for conflict in status.conflicts:
            if (process := self._processes.get(conflict.port)) is not None:
                process.send(
                    {
                        "notice": f"port {conflict.port} is claimed twice: {conflict.kept_by} keeps it, "
                        f"{conflict.refused} cannot be reached; give one job another --debug-port"
                    }
                )

    # For the server:

    def admit(self, process: RegisteredProcess, message: Registration) -> bool:
        """Add a process and return True; if its port is in use, inform both processes and return False."""
        port = process.logical_port
        self.access = self.access or message.get("access", {})
        self.any.set()
        holder = self._processes.get(port)
        if holder is not None:
            process.send(
                {
                    "refused": f"port {port} is in use by {holder.label} on this node",
                    "hint": "give this process another --debug-port",
                }
            )
            holder.send({"notice": f"port {port} was also claimed by {process.label}, which was refused"})
            return False
        process.forwards = [port for port in message.get("forwards", []) if isinstance(port, int)]
        if dump := message.get("dump"):
            process.dump = Dump(Path(dump["path"]), dump["signal"])
        self._processes[port] = process
        self.none_left.clear()
        process.send({"registered": port, "agent": os.getpid()})
        if self._listener_state:
            process.send(self._listener_state)
        self.on_change()
        return True

    def exiting(self, process: RegisteredProcess, error: str) -> None:
        """Announce that a process is about to exit, with its uncaught exception."""
        self._put_ending(Ending(process.logical_port, process.pid, error=error, is_final=False))

    def leave(self, process: RegisteredProcess) -> None:
        """Free the port of a process, and remove its stack dump; `remove` must follow."""
        if self._processes.get(process.logical_port) is process:
            self._leaving.add(process)
            del self._processes[process.logical_port]
            if process.dump is not None:
                process.dump.path.unlink(missing_ok=True)
            self.on_change()

    def ended(self, process: RegisteredProcess, status: int) -> None:
        """Announce how a process has ended.

        Args:
            process: A process that has left.
            status: Its wait status.
        """
        port, code = process.logical_port, os.waitstatus_to_exitcode(status)
        before = self._endings.get(port)
        error = before.error if before is not None and before.pid == process.pid and code > 0 else ""
        if code < 0:
            self._put_ending(Ending(port, process.pid, signal=-code))
        else:
            self._put_ending(Ending(port, process.pid, status=code, error=error))

    def remove(self, process: RegisteredProcess) -> None:
        """Remove a process; the agent exits after the last one."""
        self.leave(process)
        self._leaving.discard(process)
        if not self._processes and not self._leaving:
            self.none_left.set()

    def _put_ending(self, ending: Ending) -> None:
        self._endings.pop(ending.port, None)
        self._endings[ending.port] = ending
        while len(self._endings) > MAX_ENDINGS:
            del self._endings[next(iter(self._endings))]
        self.on_change()

    def broadcast(self, message: Message) -> None:
        """Send the state of the agent's listener to every process, including those that register later."""
        self._listener_state = message
        for process in self._processes.values():
            process.send(message)
