"""Table of the processes that have registered with the node's agent; each is a target for clients."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from relay_agent.agent.port_targets import PortTarget
from relay_agent.collectives.ras_client import ask_ras
from relay_agent.node.in_agent.azureml_run import find_run_url
from relay_agent.node.in_agent.comparison import collect_values
from relay_agent.node.in_agent.event_files import list_files, read_data
from relay_agent.node.in_agent.offered_searches import OfferedSearches
from relay_agent.node.in_agent.registered_process import RegisteredProcess
from relay_agent.node.protocol import (
    Access,
    Message,
    Registration,
)
from relay_agent.stacks.out_of_process import Dump
from relay_core.agent_api.announcement import AgentInfo
from relay_core.agent_api.collectives import NodeCollectives
from relay_core.agent_api.ending import Ending
from relay_core.agent_api.evaluation import Evaluate, NodeValues, SearchStep
from relay_core.agent_api.files.event_files import EventData, EventDataRequest, EventFiles, EventFilesRequest
from relay_core.agent_api.members import grouped
from relay_core.agent_api.metadata import ClientStatus
from relay_core.agent_api.push import NodePushed, Phase, Push
from relay_core.agent_api.requests import Collectives, Digest, FileDigest, Ready, Stacks, Wake
from relay_core.agent_api.resources.usage import NodeUsage
from relay_core.agent_api.stacks import NodeStacks
from relay_core.agent_api.values import port as valid_port
from relay_core.errors import ConfigurationError

__all__ = ["ProcessTable", "file_digest"]

MAX_SOURCE = 4 * 1024 * 1024
"""Maximum size in bytes of a source file whose digest is computed."""
MAX_ENDINGS = 64
"""Maximum number of announced endings, each about 60 bytes long; an editor needs the ending of its process within a
second."""

logger = logging.getLogger(__name__)


def file_digest(path: Path) -> FileDigest:
    """Return the digest of a regular file of at most `MAX_SOURCE` bytes."""
    try:
        if not path.is_file() or path.stat().st_size > MAX_SOURCE:
            return FileDigest()
        return FileDigest.of(path.read_bytes())
    except (OSError, ValueError):  # no permission to read it, or the path contains a zero byte
        return FileDigest()


def _digest_in(process: RegisteredProcess, path: str) -> FileDigest:
    """Return the digest of a file as the process executes it: its code may have been replaced since it was loaded."""
    file = Path(process.info.cwd or "/", path)
    replaced = process.sources.get(os.path.realpath(file)) if process.sources else None
    return file_digest(file) if replaced is None else FileDigest(replaced)


def _event_response(directories: list[str], request: EventFilesRequest | EventDataRequest) -> EventFiles | EventData:
    if isinstance(request, EventDataRequest):
        return read_data(directories, request)
    return list_files(directories)


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
        self.monitored = asyncio.Event()
        """Set when a process has requested the monitor; the next three attributes are then its settings."""
        self.monitor_interval = 0.0
        self.outputs = Path()
        self.metrics: tuple[str, int] | None = None
        self._usage: NodeUsage | None = None
        self._processes: dict[int, RegisteredProcess] = {}
        self._leaving: set[RegisteredProcess] = set()
        """Processes without a port whose exit status is not known yet."""
        self._endings: dict[int, Ending] = {}
        """The last ending of each port, the oldest first."""
        self._debugged: set[int] = set()
        """Ports of endings of processes that a debugger was attached to."""
        self._event_roots: dict[str, None] = {}
        """Directories with event files, in the order in which they were announced."""
        self._listener_state: Message | None = None
        self._searches = OfferedSearches()

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
        """Return the processes in the order of their ports."""
        return [process for _, process in sorted(self._processes.items())]

    def describe(self, agent: AgentInfo) -> AgentInfo:
        """Return the announcement with the forwards, node rank and run of the processes added."""
        first = next(iter(self._processes.values()), None)
        return replace(
            agent,
            forwards=tuple(sorted(self._forwards())),
            # A long announcement keeps the last ones only.
            endings=tuple(sorted(self._endings.values(), key=lambda ending: ending.port in self._debugged)),
            node_rank=first.node_rank if first else None,
            run=first.run if first else "",
            run_url=find_run_url(os.environ),
            usage=self._usage,
        )

    def _forwards(self) -> set[int]:
        return {port for process in self._processes.values() for port in process.forwards}

    def _event_directories(self) -> list[str]:
        """Return the directories with event files; a directory keeps its number while the agent runs."""
        found = (directory for process in self.targets() for directory in process.event_directories)
        self._event_roots.update(dict.fromkeys(found))
        return list(self._event_roots)

    async def search(self, step: SearchStep) -> bytes:
        """Continue the search for the first difference from a value on another node."""
        return await self._searches.answer(step)

    async def answer(
        self, request: Wake | Stacks | Collectives | Digest | Evaluate | Push | EventFilesRequest | EventDataRequest
    ) -> Ready | NodeStacks | NodeCollectives | FileDigest | NodeValues | NodePushed | EventFiles | EventData:
        """Start debugpy in a process, collect facts or values, replace code, or return the digest of a file."""
        if isinstance(request, Collectives):
            reports, ras = await asyncio.gather(
                asyncio.gather(*(process.collectives() for process in self.targets())), ask_ras(os.environ)
            )
            return NodeCollectives(tuple(reports), ras)
        if isinstance(request, Evaluate):
            asked = [process for process in self.targets() if request.selects(process.info.rank, process.logical_port)]
            values = await collect_values(request, asked)
            return NodeValues(self._searches.offer(request, asked, values), request.is_message)
        if isinstance(request, Push):
            pushed = [process for process in self.targets() if request.selects(process.info.rank)]
            found = NodePushed(grouped(await asyncio.gather(*(process.push(request) for process in pushed))))
            if request.phase is Phase.COMMIT:
                self.on_change()
            return found
        if isinstance(request, Stacks):
            responses = (process.stacks(with_locals=request.locals) for process in self.targets())
            return NodeStacks(tuple(await asyncio.gather(*responses)))
        if isinstance(request, EventFilesRequest | EventDataRequest):
            return await asyncio.to_thread(_event_response, self._event_directories(), request)
        return await self._answer_of_process(request)

    async def _answer_of_process(self, request: Wake | Digest) -> Ready | FileDigest:
        """Start debugpy in a process, or return the digest of one of its files."""
        process = self._processes.get(request.port)
        if process is None:
            raise ConfigurationError(f"no process on this node has port {request.port}")
        if isinstance(request, Digest):
            return await asyncio.to_thread(_digest_in, process, request.path)
        await process.locate()
        return Ready()

    def status_received(self, status: ClientStatus) -> None:
        """Write the conflicts that a client reports (two agents claim one port) to the job's log."""
        for conflict in status.conflicts:
            if (process := self._processes.get(conflict.port)) is not None:
                process.send(
                    {
                        "notice": f"port {conflict.port} is claimed twice: {conflict.kept_by} keeps it, and "
                        f"{conflict.refused} cannot be reached; give one of the jobs another --debug-port"
                    }
                )

    # For the server:

    def admit(self, process: RegisteredProcess, message: Registration) -> bool:
        """Add a process and return True; if its port is invalid or in use, inform the processes and return False."""
        port = process.logical_port
        if valid_port(port) is None:
            process.send({"refused": f"invalid port: {port!r}", "hint": "use a --debug-port from 1 to 65535"})
            return False
        self.access = self.access or message.get("access", {})
        self.any.set()
        holder = self._processes.get(port)
        if holder is not None:
            process.send(
                {
                    "refused": f"port {port} is already in use on this node by {holder.label}",
                    "hint": "give this process another --debug-port",
                }
            )
            holder.send({"notice": f"{process.label} also claimed port {port} and was refused"})
            return False
        process.forwards = [port for port in message.get("forwards", []) if isinstance(port, int)]
        process.event_directories = [str(each) for each in message.get("event_directories", [])]
        if (interval := message.get("monitor")) and not self.monitored.is_set():
            self.monitor_interval, self.outputs = interval, Path(message.get("outputs") or "outputs")
            if address := message.get("metrics"):
                self.metrics = (str(address[0]), int(address[1]))
            self.monitored.set()
        process.sources = dict(message.get("sources") or {})
        process.info = replace(process.info, pushes=len(process.sources))
        if dump := message.get("dump"):
            process.dump = Dump(Path(dump["path"]), dump["signal"])
        if (ending := self._endings.get(port)) is not None and ending.pid == process.pid:
            del self._endings[port]  # the process has replaced itself with another program (exec)
        self._processes[port] = process
        process.registered_pids = lambda: [each.own_pid for each in self._processes.values()]
        self.none_left.clear()
        process.send({"registered": port, "agent": os.getpid()})
        if self._listener_state:
            process.send(self._listener_state)
        self.on_change()
        return True

    def exiting(self, process: RegisteredProcess, error: str) -> None:
        """Announce that a process is about to exit, with its uncaught exception."""
        self._put_ending(process, Ending(process.logical_port, process.pid, error=error, is_final=False))

    def leave(self, process: RegisteredProcess) -> None:
        """Free the port of a process, and remove its stack dump; `remove` must follow.

        The caller announces the change with `on_change`, or together with how the process exited.
        """
        if self._processes.get(process.logical_port) is process:
            self._leaving.add(process)
            del self._processes[process.logical_port]
            if process.dump is not None:
                process.dump.path.unlink(missing_ok=True)

    def ended(self, process: RegisteredProcess, status: int) -> None:
        """Announce how a process exited.

        Args:
            process: A process that has left.
            status: Its wait status.
        """
        port, code = process.logical_port, os.waitstatus_to_exitcode(status)
        before = self._endings.get(port)
        error = before.error if before is not None and before.pid == process.pid and code > 0 else ""
        if code < 0:
            self._put_ending(process, Ending(port, process.pid, signal=-code))
        else:
            self._put_ending(process, Ending(port, process.pid, status=code, error=error))

    def replaced(self, process: RegisteredProcess, program: str) -> None:
        """Announce that a process which has left replaced itself with another program, which may register, too."""
        self._put_ending(process, Ending(process.logical_port, process.pid, replaced_by=program))

    def remove(self, process: RegisteredProcess) -> None:
        """Remove a process; the agent exits after the last one."""
        is_registered = self._processes.get(process.logical_port) is process
        self.leave(process)
        if is_registered:
            self.on_change()
        self._leaving.discard(process)
        if not self._processes and not self._leaving:
            self.none_left.set()

    def _put_ending(self, process: RegisteredProcess, ending: Ending) -> None:
        self._endings.pop(ending.port, None)
        self._endings[ending.port] = ending
        self._debugged.discard(ending.port)
        if process.was_debugged:
            self._debugged.add(ending.port)
        if len(self._endings) > MAX_ENDINGS:  # the oldest one that no editor needs
            port = min(self._endings, key=lambda port: port in self._debugged)
            del self._endings[port]
            self._debugged.discard(port)
        self.on_change()

    def publish_usage(self, usage: NodeUsage) -> None:
        """Announce the resource usage of the node and its processes."""
        self._usage = usage
        self.on_change()

    def broadcast(self, message: Message) -> None:
        """Send the state of the agent's listener to every process, including those that register later."""
        self._listener_state = message
        for process in self._processes.values():
            process.send(message)
