"""The node's agent, from its first member to its last.

    start (lock and socket inherited) --> first member --> credentials --> listening --> last member left --> goodbye

It brings nobody down: members that lose an agent go on, and one that cannot listen tells its members why and leaves.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import struct
from collections.abc import AsyncIterator
from pathlib import Path

from relay_agent.agent.agent import Agent
from relay_agent.node.connect import STARTER_VARIABLE
from relay_agent.node.directory import NodeDirectory
from relay_agent.node.process_exit import until_exit
from relay_agent.node.processes import Member, Members
from relay_agent.node.protocol import MAX_LINE, Message, decode
from relay_core.auth import AccessSettings, find_access
from relay_core.errors import RelayDebugError
from relay_core.net.tasks import TaskSet
from relay_core.net.tls import client_tls

__all__ = ["serve_node"]

FIRST_MEMBER_TIMEOUT = 30.0
"""Seconds for the process that started this one to register; it does so at once, unless it has ended."""
QUEUE_TIME = 1.0
"""Seconds for those who wait in the socket's queue to register."""
DRAIN_TIMEOUT = 1.5
"""Seconds that a process which leaves waits for what its debugger still has to read."""
_CREDENTIALS = struct.Struct("3i")
"""struct ucred of SO_PEERCRED: pid, uid, gid (unix(7))."""

logger = logging.getLogger(__name__)


async def serve_node(root: Path, name: str, listener: int, lock: int) -> None:
    """Serve the members that come through a listening socket, until the last one has gone.

    Args:
        root: The node's directory.
        name: Of this agent in it.
        listener: Descriptor of the socket, bound and listening.
        lock: Descriptor that holds the lock.

    Raises:
        RelayDebugError: listening on the hybrid connection is impossible; the members have been told.
    """
    directory = NodeDirectory(root, name)
    members = Members()
    host = _Host(members)
    try:
        async with TaskSet() as tasks:
            server = await asyncio.start_unix_server(host.meet, sock=socket.socket(fileno=listener), limit=MAX_LINE)
            serving = tasks.spawn(_serve_clients(members, host), name="agent")
            leaving = tasks.spawn(_until_unneeded(members), name="wait for the last member")
            await asyncio.wait({serving, leaving}, return_when=asyncio.FIRST_COMPLETED)
            directory.sweep()
            directory.clean()
            os.close(lock)  # the next process starts the next agent, while this one says goodbye
            server.close()
            if serving.done() and (error := serving.result()) is not None:
                raise error
    finally:
        await host.close()


async def _until_unneeded(members: Members) -> None:
    async with TaskSet() as tasks:
        first = tasks.spawn(members.any.wait(), name="wait for the first member")
        alone = tasks.spawn(_until_starter_gone(), name="wait for the end of who started this")
        await asyncio.wait({first, alone}, timeout=FIRST_MEMBER_TIMEOUT, return_when=asyncio.FIRST_COMPLETED)
    if members.any.is_set():
        await members.none_left.wait()


async def _until_starter_gone() -> None:
    """Return when the process that started this one has ended, and whoever else is in the socket's queue has come."""
    starter = os.environ.get(STARTER_VARIABLE, "")
    if not starter.isdecimal():
        await asyncio.Event().wait()
    await until_exit(int(starter))
    await asyncio.sleep(QUEUE_TIME)


async def _serve_clients(members: Members, host: _Host) -> RelayDebugError | None:
    """Listen with the access that the first member brings; return what made that impossible."""
    await members.any.wait()
    access_fields = dict(members.access)
    try:
        tls = client_tls(access_fields.pop("ca_file", None))
        access = await find_access(AccessSettings(**access_fields), side="agent", tls=tls)
        agent = Agent(
            access.endpoint,
            access.credential,
            members,
            tunnel_key=access.tunnel_key,
            tls=tls,
            on_listening=lambda: members.tell_all({"listening": True}),
        )
        host.agent = agent
        members.on_change = agent.publish
        await agent.run()
    except RelayDebugError as error:
        members.tell_all({"failed": error.sentence, "hint": error.hint})
        return error
    return None


class _Host:
    """Meets those who come through the socket."""

    def __init__(self, members: Members) -> None:
        self.agent: Agent | None = None
        self._members = members
        self._connections = TaskSet()

    async def close(self) -> None:
        """Hang up on everybody who is still there."""
        await self._connections.cancel_all()

    def meet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Somebody has connected."""
        self._connections.spawn(self._serve(reader, writer), name="member")

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one member until it leaves, hangs up or is killed."""
        try:
            message = await _next_message(reader)
            target = message.get("register")
            if not isinstance(target, dict) or not isinstance(target.get("port"), int):
                return
            member = Member(writer, _peer_pid(writer) or int(target.get("pid", 0)), target)
            if not self._members.admit(member, message):
                await writer.drain()
                return
            try:
                await self._follow(member, reader)
            finally:
                self._members.remove(member)
                member.gone()
        except OSError:
            pass  # it was killed
        finally:
            writer.close()

    async def _follow(self, member: Member, reader: asyncio.StreamReader) -> None:
        async with TaskSet() as tasks:
            listening = tasks.spawn(self._listen(member, reader), name=f"messages of {member}")
            ended = tasks.spawn(until_exit(member.pid), name=f"end of {member}")
            await asyncio.wait({listening, ended}, return_when=asyncio.FIRST_COMPLETED)

    async def _listen(self, member: Member, reader: asyncio.StreamReader) -> None:
        async for message in _messages(reader):
            if "answer" in message:
                member.answered(message)
            elif "state" in message:
                member.set_state(message)
                self._members.on_change()
            elif "leave" in message:
                await self._see_off(member)
                return

    async def _see_off(self, member: Member) -> None:
        """Let a process that ends wait for its debugger to read the last bytes; the last process for the goodbye."""
        if self.agent is not None:
            await self.agent.drain(member, within=DRAIN_TIMEOUT)
        self._members.remove(member)
        if not len(self._members) and self.agent is not None:
            await asyncio.Event().wait()  # the agent's goodbye to its clients comes first, and its end hangs up
        member.send({"done": True})


async def _messages(reader: asyncio.StreamReader) -> AsyncIterator[Message]:
    while message := await _next_message(reader):
        yield message


async def _next_message(reader: asyncio.StreamReader) -> Message:
    """Return the next message with something in it, or an empty one at the end."""
    try:
        while line := await reader.readline():
            if message := decode(line):
                return message
    except (OSError, ValueError):  # it was killed, or sends a line without an end
        pass
    return {}


def _peer_pid(writer: asyncio.StreamWriter) -> int:
    """Return the process at the other end as the kernel knows it; 0 where it does not say (macOS)."""
    connection: socket.socket = writer.get_extra_info("socket")
    if not hasattr(socket, "SO_PEERCRED"):
        return 0
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(credentials)[0])
