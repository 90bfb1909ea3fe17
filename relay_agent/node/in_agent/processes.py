"""Table of the processes that have registered with the node's agent; each is a target for clients."""

from __future__ import annotations

import asyncio
import logging
import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from relay_agent.agent.port_targets import PortTarget
from relay_agent.monitor.readings import AllocatorReading, MonitorSettings
from relay_agent.node.in_agent.node_answers import NodeAnswers
from relay_agent.node.in_agent.registered_process import RegisteredProcess
from relay_agent.node.protocol import Access
from relay_core.agent_api.announcement import AgentInfo, Ending
from relay_core.agent_api.metadata import ClientStatus
from relay_core.agent_api.usage import NodeUsage
from relay_core.net.tasks import TaskSet
from relay_core.records import MISSING, as_is, read_port

logger = logging.getLogger(__name__)


# Asks the processes of a node, for each sample of the monitor, how much memory torch's allocator uses.

ALLOCATOR_TIMEOUT = 0.5
"""Seconds that a sample waits for the answers. A process needs 1 ms unless C code holds the GIL."""


class Allocators:
    """The allocators of the processes of a node.

    A process is not asked again until it has answered, so that requests do not accumulate during a long call into C
    code, and no sample waits for it twice.

    Args:
        processes: Returns the current processes.
        tasks: Owns the tasks that wait for answers.
    """

    def __init__(self, processes: Callable[[], Sequence[RegisteredProcess]], tasks: TaskSet) -> None:
        self._processes = processes
        self._tasks = tasks
        self._asked: dict[RegisteredProcess, asyncio.Task[AllocatorReading | None]] = {}

    async def read(self) -> dict[int, AllocatorReading]:
        """Return the memory usage of the processes that report it in time, by port."""
        pending = {process: task for process, task in self._asked.items() if not task.done()}
        asked = {
            process: self._tasks.spawn(process.allocator(), name=f"allocator of {process}")
            for process in self._processes()
            if process not in pending
        }
        self._asked = {**pending, **asked}
        if asked:
            await asyncio.wait(asked.values(), timeout=ALLOCATOR_TIMEOUT)
        answers = {process.logical_port: _result(task) for process, task in asked.items()}
        return {port: found for port, found in answers.items() if found is not None}


def _result(task: asyncio.Task[AllocatorReading | None]) -> AllocatorReading | None:
    return task.result() if task.done() and not task.cancelled() and task.exception() is None else None


# The Azure ML run to which this node belongs, read from the environment variables of its job.

STUDIO = "https://ml.azure.com"
_WORKSPACE = {
    "subscriptions": "AZUREML_ARM_SUBSCRIPTION",
    "resourcegroups": "AZUREML_ARM_RESOURCEGROUP",
    "workspaces": "AZUREML_ARM_WORKSPACE_NAME",
}
"""The parts of the workspace's path, and the variables that azureml-mlflow reads them from."""
_NAME = re.compile(r"[\w.()-]{1,256}", re.ASCII)
"""Characters that Azure allows in these names; a value with another character, such as a space, would break the
link."""


def find_run_url(environ: Mapping[str, str]) -> str:
    """Return the address of the run's page in Azure ML studio; "" outside Azure ML or if a variable is missing."""
    run = environ.get("AZUREML_RUN_ID", "")
    parts = {name: environ.get(variable, "") for name, variable in _WORKSPACE.items()}
    if not all(_NAME.fullmatch(text) for text in (run, *parts.values())):
        return ""
    workspace = "".join(f"/{name}/{text}" for name, text in parts.items())
    return f"{STUDIO}/runs/{run}?wsid={workspace}"


# How the processes of the node ended, for the announcement: the last ending of each port.

MAX_ENDINGS = 64
"""Maximum number of announced endings, each about 70 bytes long; an editor needs the ending of its process within a
second."""


NOT_HELD = (
    " without an uncaught exception, so --debug-on-crash did not hold it. hint: if its code catches the exception, put "
    "@relay_agent.hold_on_crash() in front of the function that raises it"
)
OTHER_MONITOR = "the monitor of this node keeps the settings of the job that started it, which differ from these"


class Endings:
    """The endings that the agent announces; those that an editor needs are kept longest."""

    def __init__(self) -> None:
        self._endings: dict[int, tuple[bool, Ending]] = {}
        """By port, the oldest first; True if a debugger was attached to the process."""

    def announced(self) -> tuple[Ending, ...]:
        """Return the endings of debugged processes after all others: a long announcement keeps the last ones only."""
        return tuple(ending for _, ending in sorted(self._endings.values(), key=lambda kept: kept[0]))

    def exiting(self, process: RegisteredProcess, error: str) -> None:
        """Store that a process is about to exit, with its uncaught exception."""
        self._put(process, error=error, is_final=False)

    def ended(self, process: RegisteredProcess, status: int | None) -> None:
        """Store the wait status of a process, if known; unless it is 0, with the exception stored by `exiting`."""
        code = None if status is None else os.waitstatus_to_exitcode(status)
        if code is not None and code < 0:
            self._put(process, signal=-code)
        else:
            before = self.find(process)
            error = before.error if before is not None and code != 0 else ""
            self._put(process, status=code, error=error)

    def replaced(self, process: RegisteredProcess, program: str) -> None:
        """Store that a process has replaced itself with another program (exec)."""
        self._put(process, replaced_by=program)

    def registered(self, process: RegisteredProcess) -> None:
        """Remove the ending of a process if the program with which it has replaced itself has registered."""
        if self.find(process) is not None:
            del self._endings[process.logical_port]

    def find(self, process: RegisteredProcess) -> Ending | None:
        """Return how a process has ended, as far as is known."""
        _, ending = self._endings.get(process.logical_port, (False, None))
        return ending if ending is not None and ending.pid == process.pid else None

    def _put(self, process: RegisteredProcess, **how: Any) -> None:
        port = process.logical_port
        self._endings.pop(port, None)
        self._endings[port] = process.was_debugged, Ending(port, process.pid, rank=process.info.rank, **how)
        if len(self._endings) > MAX_ENDINGS:  # the oldest one that no editor needs
            del self._endings[min(self._endings, key=lambda port: self._endings[port][0])]


class ProcessTable:
    """All registered processes of the node; the agent's `TargetProvider`."""

    def __init__(self) -> None:
        self.on_change: Callable[[], None] = lambda: None
        """Called when the announcement has changed."""
        self.on_register: Callable[[RegisteredProcess], None] = lambda _process: None
        """Called when a process has been added."""
        loop = asyncio.get_running_loop()
        self.access: asyncio.Future[Access] = loop.create_future()
        """Settings for the agent's listener, from the first process."""
        self.monitor: asyncio.Future[MonitorSettings] = loop.create_future()
        """Settings for the monitor, from the first process that requests it."""
        self.none_left = asyncio.Event()
        """Set when the last process has left."""
        self._usage: NodeUsage | None = None
        self._processes: dict[int, RegisteredProcess] = {}
        self._leaving: set[RegisteredProcess] = set()
        """Processes without a port whose exit status is not known yet."""
        self.endings = Endings()
        """How processes have ended; who adds one calls `on_change`."""
        self.answer = NodeAnswers(self.targets, on_push=lambda: self.on_change()).answer  # noqa: PLW0108 - it is set later
        """Returns the response to a request."""

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
            endings=self.endings.announced(),
            node_rank=first.node_rank if first else None,
            run=first.run if first else "",
            run_url=find_run_url(os.environ),
            usage=self._usage,
        )

    def _forwards(self) -> set[int]:
        return {port for process in self._processes.values() for port in process.forwards}

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

    def set_held_jobs(self, jobs: Collection[int]) -> None:
        """Let the processes of these jobs raise their timeouts, and let all others restore them."""
        for process in self._processes.values():
            process.set_job_held(process.info.base_port in jobs)

    # For the server:

    def admit(self, process: RegisteredProcess) -> bool:
        """Add a process and return True; if its port is invalid or in use, inform the processes and return False.

        A rank takes the port of the launcher that has started it: the launcher was not known to be one.
        """
        port = process.logical_port
        if read_port(port, as_is) is MISSING:
            process.send({"refused": f"invalid port: {port!r}", "hint": "use a --debug-port from 1 to 65535"})
            return False
        if not self.access.done():
            self.access.set_result(process.access)
        holder = self._processes.get(port)
        if holder is not None and process.displaces(holder):
            text = f"port {port} is now that of {process.label}, a rank that this process has started"
            holder.was_displaced = True
            holder.send({"refused": text, "hint": ""})
            self.leave(holder)
            holder.left()
        elif holder is not None:
            process.send(
                {
                    "refused": f"port {port} is already in use on this node by {holder.label}",
                    "hint": "give this process another --debug-port",
                }
            )
            holder.send({"notice": f"{process.label} also claimed port {port} and was refused"})
            return False
        if process.monitor is not None and not self.monitor.done():
            self.monitor.set_result(process.monitor)
        elif process.monitor is not None and process.monitor != self.monitor.result():
            process.send({"notice": OTHER_MONITOR})
        self.endings.registered(process)
        self._processes[port] = process
        process.registered_pids = lambda: [each.own_pid for each in self._processes.values()]
        self.none_left.clear()
        process.send({"registered": port, "agent": os.getpid()})
        self.on_register(process)
        self.on_change()
        return True

    def leave(self, process: RegisteredProcess) -> None:
        """Free the port of a process, and remove its stack dump; `remove` must follow.

        The caller announces the change with `on_change`, or together with how the process exited.
        """
        if self._processes.get(process.logical_port) is process:
            self._leaving.add(process)
            del self._processes[process.logical_port]
            if process.dump is not None:
                process.dump.path.unlink(missing_ok=True)

    def ended(self, process: RegisteredProcess, status: int | None) -> None:
        """Announce the wait status of a process that has left, or that it remains unknown."""
        self.endings.ended(process, status)
        self.on_change()
        ending = self.endings.find(process)
        if ending is not None and ending.status and not ending.error and process.awaits_crash:
            logger.warning("%s ended with status %d%s", process.label, ending.status, NOT_HELD)

    def remove(self, process: RegisteredProcess) -> None:
        """Remove a process; the agent exits after the last one."""
        is_registered = self._processes.get(process.logical_port) is process
        self.leave(process)
        if is_registered:
            self.on_change()
        self._leaving.discard(process)
        if not self._processes and not self._leaving:
            self.none_left.set()

    def publish_usage(self, usage: NodeUsage) -> None:
        """Announce the resource usage of the node and its processes."""
        self._usage = usage
        self.on_change()
