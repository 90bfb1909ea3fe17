"""Server of the node's agent process, which runs until the last process of the job on this node has exited.

    start (lock and socket inherited) --> first process --> credentials --> listening --> last process left --> exit

The agent never stops a job: processes continue if their agent exits, and an agent that cannot listen sends them the
reason and exits. An agent that cannot reach the relay retries, and informs the processes
(`relay_agent.node.in_agent.relay_reachability`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import struct
from pathlib import Path

from relay_agent.agent.agent import ANNOUNCEMENT_INTERVAL, Agent
from relay_agent.agent.succession import Succession
from relay_agent.node.directory import STARTER_VARIABLE, NodeDirectory
from relay_agent.node.in_agent.other_process import ProcessExit, until_exit
from relay_agent.node.in_agent.processes import Allocators, ProcessTable
from relay_agent.node.in_agent.registered_process import RegisteredProcess
from relay_agent.node.in_agent.relay_reachability import Reach
from relay_agent.node.in_agent.run_tag import RunTag
from relay_agent.node.protocol import MAX_LINE, Message, decode
from relay_agent.settings.environment import LOCAL_RUN
from relay_core.access_settings import AccessSettings
from relay_core.auth import find_access
from relay_core.errors import RelayDebugError
from relay_core.net.relay_tls import client_tls
from relay_core.net.tasks import Paced, TaskSet, first_completed, frames_of

FIRST_PROCESS_TIMEOUT = 30.0
"""Timeout in seconds for the process that started this agent to register, which it does immediately unless it has
exited."""
QUEUE_TIME = 1.0
"""Seconds for the processes in the socket's backlog to register."""
STATUS_TIME = 0.5
"""Seconds for which a process without `Leave` stays registered after it has left. Its exit status is usually known by
then, and both are announced together. An editor waits for 1 s before it regards the reason as unknown."""
DRAIN_TIMEOUT = 1.5
"""Maximum time in seconds that an exiting process waits for its debugger to receive the last bytes."""
EXIT_TIMEOUT = 5.0
"""Seconds for a process to exit after it has closed its connection; one that has not exited by then may have executed
another program. After `Leave`, a process only has to finalize its interpreter and release its memory."""
NOTICED_WITHIN = 5.0
"""Seconds in which the agent notices that a process has exited, or has closed the connection with which it had
registered before."""
_CREDENTIALS = struct.Struct("3i")
"""struct ucred of SO_PEERCRED: pid, uid, gid (unix(7))."""

logger = logging.getLogger(__name__)


async def serve_node(root: Path, name: str, listener: int, lock: int) -> None:
    """Serve the processes that connect to a listening socket, until the last one has left.

    Args:
        root: The node's directory.
        name: The name of this agent in the directory.
        listener: File descriptor of the listening socket.
        lock: File descriptor that holds the lock.

    Raises:
        RelayDebugError: the agent cannot listen on the hybrid connection; it has sent the processes the reason.
    """
    directory = NodeDirectory(root, name)
    processes = ProcessTable()
    node_server = _NodeServer(processes)
    succession = Succession(lock)
    try:
        async with TaskSet() as tasks:
            server = await asyncio.start_unix_server(
                node_server.accept_connection, sock=socket.socket(fileno=listener), limit=MAX_LINE
            )
            serving = tasks.spawn(_serve_clients(processes, node_server, succession), name="agent")
            tasks.spawn(_monitor(processes), name="monitor")
            leaving = tasks.spawn(_until_unneeded(processes), name="wait for the last process")
            await first_completed(serving, leaving)
            directory.sweep()
            directory.clean()
            # Closed first, so that a new process can start a new agent while this one closes its sessions.
            os.close(lock)
            server.close()
            if serving.done() and (error := serving.result()) is not None:
                raise error
    finally:
        await node_server.close()


async def _until_unneeded(processes: ProcessTable) -> None:
    await first_completed(processes.access, _until_starter_gone(), timeout=FIRST_PROCESS_TIMEOUT)
    if processes.access.done():
        await processes.none_left.wait()


async def _monitor(processes: ProcessTable) -> None:
    """Run the monitor once a process has requested it, whether the relay can be reached or not."""
    settings = await processes.monitor
    from relay_agent.monitor.monitor import Monitor  # noqa: PLC0415 - with --debug-monitor only

    node_rank = next((process.node_rank for process in processes.targets()), None) or 0
    async with TaskSet() as tasks:
        allocators = Allocators(processes.targets, tasks)
        monitor = Monitor(
            lambda: [process.describe() for process in processes.targets()],
            allocators.read,
            processes.publish_usage,
            settings,
            environ=os.environ,
            node_rank=node_rank,
        )
        await monitor.run()


async def _until_starter_gone() -> None:
    """Return when the process that started this agent has exited and those in the backlog have had time to register."""
    starter = os.environ.get(STARTER_VARIABLE, "")
    if not starter.isdecimal():
        await asyncio.Event().wait()
    await until_exit(int(starter))
    await asyncio.sleep(QUEUE_TIME)


async def _serve_clients(
    processes: ProcessTable, node_server: _NodeServer, succession: Succession
) -> RelayDebugError | None:
    """Run the agent with the settings of the first process; return the error that stopped it."""
    given = await processes.access
    if LOCAL_RUN in given:
        await asyncio.Event().wait()  # until the last process has left
    reach = Reach(processes, has_listened=succession.has_listened)
    try:
        settings = AccessSettings(**given)
        tls = client_tls(settings.ca_file)
        access = await reach.retry(lambda: find_access(settings, side="agent", tls=tls))
        agent = Agent(
            access.endpoint,
            access.credential,
            processes,
            tunnel_key=access.tunnel_key,
            tls=tls,
            on_listening=reach.listening,
            on_retry=reach.retrying,
            on_failure=reach.failed,
            succession=succession,
        )
        node_server.agent = agent
        processes.on_change = agent.publish
        await _run_with_tag(agent, processes, RunTag.of_job(os.environ, access.endpoint.path))
    except RelayDebugError as error:
        failure = error
    except Exception as error:  # noqa: BLE001 - the processes are waiting for an answer
        logger.debug("unexpected error in the agent: %s", frames_of(error))
        failure = RelayDebugError(f"the agent failed: unexpected {type(error).__name__}")
    else:
        return None
    reach.failed(failure)
    return failure


async def _run_with_tag(agent: Agent, processes: ProcessTable, tag: RunTag | None) -> None:
    """Run the agent, and keep the run's tag, if there is one, up to date."""
    if tag is None:
        await agent.run()
        return

    def update() -> None:
        targets = processes.targets()
        tag.update((each.describe() for each in targets), targets[0].node_rank if targets else None)

    updating = Paced(update, ANNOUNCEMENT_INTERVAL)

    def publish() -> None:
        agent.publish()
        updating.request()

    processes.on_change = publish
    publish()
    async with TaskSet() as tasks:
        tasks.spawn(tag.run(), name="tag of the run")
        await agent.run()


class _NodeServer:
    """Accepts the node's processes."""

    def __init__(self, processes: ProcessTable) -> None:
        self.agent: Agent | None = None
        self._processes = processes
        self._connections = TaskSet()

    async def close(self) -> None:
        """Close all open connections."""
        await self._connections.cancel_all()

    def accept_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve a new connection in a task."""
        self._connections.spawn(self._serve(reader, writer), name="process")

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one process until it leaves, closes its connection or exits."""
        try:
            message = await _next_message(reader)
            if message is None or "register" not in message or "port" not in message["register"]:
                return
            process = RegisteredProcess(writer, _peer_pid(writer) or message["register"].get("pid", 0), message)
            await self._until_free(process)
            if not self._processes.admit(process):
                await writer.drain()
                return
            try:
                await self._follow(process, reader)
            finally:
                process.left()
                self._processes.remove(process)
        except OSError:
            pass  # the process was killed
        finally:
            writer.close()

    async def _until_free(self, process: RegisteredProcess) -> None:
        """Wait until the registration of a process that has exited, or that registers anew, has ended.

        If the port is that of the launcher that has started the process, wait until nobody is debugging the launcher.
        """
        former = self._processes.find(process.logical_port)
        if isinstance(former, RegisteredProcess) and (former.pid == process.pid or former.has_gone):
            await former.until_left(within=NOTICED_WITHIN)
        elif isinstance(former, RegisteredProcess) and process.displaces(former):
            if not former.is_idle:
                text = f"{process.label}, a rank that this process has started, gets port {process.logical_port}"
                former.send({"notice": f"{text} when the debugger has detached from this process"})
            await former.until_idle()

    async def _follow(self, process: RegisteredProcess, reader: asyncio.StreamReader) -> None:
        """Serve a process until it exits or closes its connection, and announce how it exited."""
        with ProcessExit(process.pid) as process_exit:
            await first_completed(self._listen(process, reader), process_exit.wait())
            status = None
            if program := await process.image.successor():
                self._processes.endings.replaced(process, program)
            elif not process.is_exiting:
                status = await process_exit.status(within=STATUS_TIME)
            if process.was_displaced:
                return
            self._processes.leave(process)  # another process may now register its port
            process.left()
            if status is None:
                self._processes.on_change()
                status = await process_exit.status(within=EXIT_TIMEOUT)
            if status is not None or (process.is_exiting and not program):
                self._processes.ended(process, status)

    async def _listen(self, process: RegisteredProcess, reader: asyncio.StreamReader) -> None:
        while message := await _next_message(reader):
            if "answer" in message:
                if process.answer_received(message):
                    self._processes.on_change()
            elif "state" in message:
                process.set_state(message)
                self._processes.on_change()
            elif "ping" in message:
                process.send({"pong": True})
            elif "leave" in message:
                await self._drain_before_exit(process, message.get("error", ""))
                return

    async def _drain_before_exit(self, process: RegisteredProcess, error: str) -> None:
        """Answer `Leave` after the client has received the last bytes: a container may stop with its last process.

        The exit is also announced before the answer; the exit status follows if there is time.
        """
        process.is_exiting = True
        self._processes.endings.exiting(process, error)
        self._processes.on_change()
        if self.agent is not None:
            await self.agent.drain(process, within=DRAIN_TIMEOUT)
        process.send({"done": True})


async def _next_message(reader: asyncio.StreamReader) -> Message | None:
    """Return the next non-empty message, or None at the end of the connection."""
    with contextlib.suppress(OSError, ValueError):  # the process was killed, or a line exceeds MAX_LINE
        while line := await reader.readline():
            if message := decode(line):
                return message
    return None


def _peer_pid(writer: asyncio.StreamWriter) -> int:
    """Return the process id of the peer as reported by the kernel; 0 on a system without this information (macOS)."""
    connection: socket.socket = writer.get_extra_info("socket")
    if not hasattr(socket, "SO_PEERCRED"):
        return 0
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(credentials)[0])
