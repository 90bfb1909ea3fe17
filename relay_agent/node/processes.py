"""What the node's agent knows about its members: each is a process, a connection to it, and a target for clients."""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from relay_agent.agent.port_targets import Target, TargetGone
from relay_agent.node.protocol import Message, encode
from relay_agent.stacks.out_of_process import Dump, stacks_of
from relay_core.compat import TIMEOUT_ERRORS, timeout
from relay_core.errors import ConfigurationError, ConnectionLost, RelayDebugError
from relay_core.tunnel.payloads import JsonObject

__all__ = ["Member", "Members"]

ARM_TIMEOUT = 30.0
"""Seconds a process may take to start debugpy: 0.3 s, unless it holds the GIL in C code."""
STACKS_TIMEOUT = 10.0
"""Seconds; `stacks_of` gives up on it earlier."""

logger = logging.getLogger(__name__)


class Member:
    """One process that registered.

    Args:
        writer: The connection to it.
        pid: As this process sees it.
        target: What it said about itself.
    """

    dap_only = True

    def __init__(self, writer: asyncio.StreamWriter, pid: int, target: Message) -> None:
        self.pid = pid
        self.forwards: list[int] = []
        self.dump: Dump | None = None
        """How it can be asked for its stacks by signal."""
        self._writer = writer
        self._target = dict(target)
        self._asked: dict[int, asyncio.Future[Message]] = {}
        self._numbers = itertools.count(1)

    def __repr__(self) -> str:
        return f"<Member port {self.logical_port} pid {self.pid} {self._target.get('state')}>"

    def __str__(self) -> str:
        return f"{self.logical_port} ({self.process})"

    @property
    def process(self) -> str:
        """What people know it by on its machine."""
        script = self._target.get("script")
        return f"pid {self.pid}, {script}" if script else f"pid {self.pid}"

    @property
    def logical_port(self) -> int:
        """The number that users write in `--ports` and launch.json."""
        return int(self._target["port"])

    def describe(self) -> JsonObject:
        """Return what clients are told about it."""
        return {**self._target, "pid": self.pid}

    def set_state(self, message: Message) -> None:
        """Note what it says it does."""
        said = {"state": message["state"], "detail": message.get("detail", ""), "until": message.get("until")}
        self._target |= {**said, "since": time.time()}

    def get(self, field: str) -> object:
        """Return one thing that it said about itself."""
        return self._target.get(field)

    async def locate(self) -> tuple[str, int]:
        """Have the process start debugpy, or take it up again, and return where that listens.

        Raises:
            RelayDebugError: debugpy did not start, or the process does not answer.
        """
        answer = await self.ask("arm", within=ARM_TIMEOUT)
        return "127.0.0.1", int(answer["port"])

    async def connect_to(self, port: int) -> None:
        """Have the process's debugger connect to a port of this machine.

        Raises:
            RelayDebugError: it cannot.
        """
        await self.ask("connect", within=ARM_TIMEOUT, port=port)

    async def stacks(self, *, with_locals: bool) -> JsonObject:
        """Return what the threads of the process are doing, as the tunnel's `stacks` request has it."""

        async def ask() -> list[Message]:
            threads = (await self.ask("stacks", within=STACKS_TIMEOUT, locals=with_locals))["threads"]
            return list(threads)

        found = await stacks_of(self.pid, ask, self.dump, locals=with_locals)
        return {"port": self.logical_port, "rank": self.get("rank"), "pid": self.pid, **found}

    def left(self) -> None:
        """The debugger has gone: the process may run at full speed again."""
        self.send({"ask": "release", "id": 0})

    async def ask(self, what: str, *, within: float, **fields: object) -> Message:
        """Ask the process for something and return its answer.

        Raises:
            ConnectionLost: it has ended, or does not answer within so many seconds.
            RelayDebugError: it says that it cannot.
        """
        if self._writer.is_closing():
            raise TargetGone(f"{self} has ended")
        number = next(self._numbers)
        answered = self._asked[number] = asyncio.get_running_loop().create_future()
        self.send({"ask": what, "id": number, **fields})
        try:
            async with timeout(within):
                answer: Message = await answered
        except TIMEOUT_ERRORS:
            raise ConnectionLost(
                f"{self} does not answer within {within:g} s",
                hint="it may be stuck in C code; look with 'relay-client stacks'",
            ) from None
        finally:
            self._asked.pop(number, None)
        if "error" in answer:
            raise RelayDebugError(str(answer["error"]), hint=str(answer.get("hint", "")))
        return answer

    def answered(self, message: Message) -> None:
        """Take an answer."""
        asked = self._asked.get(message["answer"])
        if asked is not None and not asked.done():
            asked.set_result(message)

    def gone(self) -> None:
        """The process has ended; whoever waits for it is told so."""
        for asked in self._asked.values():
            if not asked.done():
                asked.set_exception(TargetGone(f"{self} has ended"))
        self._writer.close()

    def send(self, message: Message) -> None:
        """Tell the process something."""
        if not self._writer.is_closing():
            self._writer.write(encode(message))


class Members:
    """All members of the node, as the agent's catalog."""

    def __init__(self) -> None:
        self.on_change: Callable[[], None] = lambda: None
        """Called when something that clients are told has changed."""
        self.any = asyncio.Event()
        """Set once there has been a member; `access` is then what it brought."""
        self.none_left = asyncio.Event()
        """Set when the last one has left."""
        self.access: Message = {}
        self._members: dict[int, Member] = {}
        self._news: Message | None = None

    def __repr__(self) -> str:
        return f"<Members {sorted(self._members)}>"

    def __len__(self) -> int:
        return len(self._members)

    # The catalog:

    def find(self, port: int) -> Member | Target | None:
        """Return the member that has a logical port, or the forward that some member allows."""
        if port not in self._members and port in self._forwards():
            return Target(port, port)
        return self._members.get(port)

    def targets(self) -> list[Member]:
        """Return the members, by port."""
        return [member for _, member in sorted(self._members.items())]

    def describe(self) -> JsonObject:
        """Return what the members have in common."""
        first = next(iter(self._members.values()), None)
        return {
            "forwards": sorted(self._forwards()),
            "node_rank": first.get("node_rank") if first else None,
            "run": first.get("run") if first else None,
        }

    def _forwards(self) -> set[int]:
        return {port for member in self._members.values() for port in member.forwards}

    async def answer(self, request: str) -> JsonObject:
        """Answer `wake/PORT`, `stacks` and `stacks/locals`."""
        what, _, detail = request.partition("/")
        if what == "stacks":
            members = self.targets()
            asked = (member.stacks(with_locals=detail == "locals") for member in members)
            return {"processes": list(await asyncio.gather(*asked))}
        if what != "wake":
            raise ConfigurationError(f"this agent does not know the request '{what}'")
        member = self._members.get(int(detail)) if detail.isdecimal() else None
        if member is None:
            raise ConfigurationError(f"nothing here has port {detail}")
        await member.locate()
        return {"ready": True}

    def told(self, status: Mapping[str, object]) -> None:
        """A client has seen two agents claim one port: say so in the job's log."""
        conflicts = status.get("conflicts")
        for conflict in conflicts if isinstance(conflicts, list) else []:
            member = self._members.get(conflict.get("port", 0)) if isinstance(conflict, dict) else None
            if member is not None:
                member.send(
                    {
                        "notice": f"port {conflict['port']} is claimed twice: {conflict.get('kept_by')} keeps it, "
                        f"{conflict.get('refused')} is not reached; give one job another --debug-port"
                    }
                )

    # The members:

    def admit(self, member: Member, message: Message) -> bool:
        """Put a member on the list, unless its port is taken; it is told, and so is who has the port."""
        port = member.logical_port
        self.access = self.access or message.get("access", {})
        self.any.set()
        holder = self._members.get(port)
        if holder is not None:
            member.send(
                {
                    "refused": f"port {port} is taken by {holder.process} on this node",
                    "hint": "give this process another --debug-port",
                }
            )
            holder.send({"notice": f"port {port} was claimed by {member.process} as well and refused"})
            return False
        member.forwards = [port for port in message.get("forwards", []) if isinstance(port, int)]
        if message.get("dump"):
            member.dump = Dump(Path(message["dump"]["path"]), int(message["dump"]["signal"]))
        self._members[port] = member
        self.none_left.clear()
        member.send({"registered": port, "agent": os.getpid()})
        if self._news:
            member.send(self._news)
        self.on_change()
        return True

    def remove(self, member: Member) -> None:
        """Take a member off the list."""
        if self._members.get(member.logical_port) is member:
            del self._members[member.logical_port]
            if member.dump is not None:
                member.dump.path.unlink(missing_ok=True)
            self.on_change()
        if not self._members:
            self.none_left.set()

    def tell_all(self, message: Message) -> None:
        """Tell every member, and those to come, how the agent stands with the relay."""
        self._news = message
        for member in self._members.values():
            member.send(message)
