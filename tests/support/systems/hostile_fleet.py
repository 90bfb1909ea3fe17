"""Agents that put every text of the corpus into every field that an agent or a job fills, and what the sinks show.

Each node has one text and two ranks. In each field, the text follows a mark with the field's name and the number of the
text, so that what a sink shows can be assigned to the field from which it comes.
"""

from __future__ import annotations

import contextlib
import json
import logging
import re
import sys
from base64 import b64encode
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp

from relay_agent.agent.agent import Agent
from relay_client.page.server import FILES
from relay_client.tensorboard.server import LiveFiles
from relay_core.agent_api.announcement import AgentInfo, Attachment, Ending
from relay_core.agent_api.collectives import (
    GroupRecord,
    Operation,
    ProcessCollectives,
    RasCommunicator,
    RasStatus,
)
from relay_core.agent_api.evaluation import Difference, Evaluate, Value
from relay_core.agent_api.event_files import EventData, EventDataRequest, EventFile, EventFiles, EventFilesRequest
from relay_core.agent_api.questions import NodeReplies, ReadCollectives, ReadEnvironment, ReadStacks, Reply
from relay_core.agent_api.stacks import Frame, ProcessStacks, ThreadStack
from relay_core.agent_api.usage import GpuUsage, NodeUsage
from relay_core.compat import timeout
from relay_core.errors import RelayDebugError
from relay_core.records import encode
from relay_server.config.model import Limits
from tests.support.data.hostile_texts import HOSTILE_TEXTS
from tests.support.jobs.running import access
from tests.support.machine.deadline import DEADLINE
from tests.support.machine.ports import free_port
from tests.support.machine.programs import REPOSITORY, environment, program, run
from tests.support.machine.streams import echo, local_server
from tests.support.network.fleet import KEY, Node, Process, agent, tunnels
from tests.support.network.relay import HC, LocalRelay, local_relay
from tests.support.systems.page import served_page

if TYPE_CHECKING:
    pass

CONTROLS = "\r\x1b[2J\x1b]52;c;cGFzdGVk\x07\x1b]8;;http://host.invalid\x1b\\\\\x9b31m\u2028end\u202e"
"""Codes that clear the screen, fill the clipboard, begin a link, set a colour and reverse the writing direction."""
FORGED = f"alice\nrelay-client: error: forged{CONTROLS}"
TEXTS = (FORGED, *HOSTILE_TEXTS.values())
COMMANDS = (
    ("targets",),
    ("targets", "--json"),
    ("stacks", "--locals", "--all-threads"),
    ("hang",),
    ("eval", "loss"),
    ("eval", "refused"),
    ("diff", "model"),
    ("env", "all"),
    ("status",),
    ("attach", "0"),
    ("attach", "1"),
    ("release", "0"),
    ("logs", "--lines", "1000"),
)
MAX_FIELD = 2000
"""Maximum number of characters in a field, so that an announcement has room for all of them."""
USUAL_DIGEST = "ffff"
"""The checksum of the value that most ranks have."""
EVENT_FILE = "events.out.tfevents.1"
MARK = re.compile(r"[@_]([a-z_]+)\.([0-9]+)[@_]")
"""Matches the mark before a text; in the name of a folder, `_` replaces `@`."""


def marked(name: str, number: int) -> str:
    """Return a text with its mark."""
    return f"@{name}.{number}@{TEXTS[number]}"[:MAX_FIELD]


# Agents.


class HostileNode(Node):
    """A node of two ranks, one of them crashed and one held; its answers consist of one text."""

    def __init__(self, number: int, base: int, local: int) -> None:
        self.number = number
        self.filled: set[str] = set()
        """The fields that it has filled so far."""
        self.rank = 2 * number
        self.port = base + self.rank
        texts = {name: self.text(name) for name in ("script", "cwd", "detail")}
        common = {"world": 2 * len(TEXTS), "pid": 7, **texts}
        gpu = GpuUsage(self.text("gpu"), 0.5, 1, 2)
        super().__init__(
            Process(self.port, local, rank=self.rank, state="crashed", **common),
            Process(self.port + 1, local, rank=self.rank + 1, state="running", **common),
            host=self.text("host"),
            run=self.text("run"),
            run_url=f"https://studio.example/{self.text('run_url')}",
            cwd=self.text("node_cwd"),
            usage=NodeUsage(1.0, 0.5, 1, 1, 2, (gpu,)),
        )

    def text(self, name: str) -> str:
        self.filled.add(name)
        return marked(name, self.number)

    def end(self) -> None:
        """Let both ranks leave."""
        self.fields["endings"] = (
            Ending(self.port, 7, status=1, error=self.text("ending")),
            Ending(self.port + 1, 7, replaced_by=self.text("replaced_by")),
        )
        self.processes.clear()
        self.publish()

    def attachment(self) -> Attachment:
        text = self.text
        return Attachment(
            text("holder"), 1.0, is_stopped=True, stopped_at=text("stopped_at"), uncaught=text("uncaught")
        )

    def stacks(self) -> ProcessStacks:
        names = {self.text("local_name"): self.text("local_value")}
        frame = Frame(self.text("file"), 7, self.text("function"), names)
        thread = ThreadStack(self.text("thread"), 1, True, (frame,))
        return ProcessStacks(self.text("how"), (thread,), self.text("stacks_error"))

    def stacks_of(self, request: ReadStacks) -> NodeReplies:
        reply = Reply(self.port, self.rank, encode(self.stacks()), pid=7)
        return NodeReplies((reply,) if request.selects(self.rank, self.port) else ())

    def groups(self) -> NodeReplies:
        text = self.text
        operation = Operation(1, text("operation"), text("inputs"), called=text("called"))
        members = (self.rank, self.rank + 1)
        group = GroupRecord(text("group"), text("description"), "other", members, 1, 0, (operation,))
        known = ProcessCollectives(self.rank, (group,), text("problem"), text("activity"), self.stacks())
        replies = (
            Reply(self.port, self.rank, encode(known)),
            Reply(self.port + 1, self.rank + 1, error=text("collectives_error")),
        )
        communicator = RasCommunicator(text("communicator"), 2, (text("remark"),))
        return NodeReplies(replies, encode(RasStatus(text("nccl"), (communicator,), text("ras_error"))))

    def values(self, request: Evaluate) -> NodeReplies:
        text = self.text
        if "refused" in request.expression:  # for MCP, it is an argument of the reader of paths
            raise RelayDebugError(text("failure"), hint=text("hint"))
        if request.selection is None:
            values = (Value(text=text("value"), place=text("place")), Value(error=text("value_error")))
        else:
            found = Difference(
                text("leaf"), text("leaf_kind"), 0, text("first"), text("second"), text("note"), USUAL_DIGEST
            )
            odd = Value(place=text("place"), digest=f"{self.number:04x}", leaves=1, difference=found)
            values = (odd, Value(place=text("place"), digest=USUAL_DIGEST, leaves=1))
        chosen = enumerate(values if request.selects(self.rank, self.port) else ())
        return NodeReplies(tuple(Reply(self.port + n, self.rank + n, encode(value)) for n, value in chosen))

    def environment(self) -> NodeReplies:
        variables = {self.text("variable"): self.text("variable_value")}
        return NodeReplies((Reply(self.port, self.rank, {"variables": variables, "left_out": 0}),))

    async def answer(self, request: Any) -> Any:
        answers: dict[type, Callable[[], object]] = {
            ReadStacks: lambda: self.stacks_of(request),
            ReadCollectives: self.groups,
            Evaluate: lambda: self.values(request),
            ReadEnvironment: self.environment,
            EventFilesRequest: lambda: EventFiles(tuple(EventFile(path, 1) for path in paths_with(self.number))),
            EventDataRequest: lambda: EventData(b"x"),
        }
        found = answers.get(type(request))
        return await super().answer(request) if found is None else found()


def paths_with(number: int) -> list[str]:
    """Return paths of an event file that contain a text, with and without a mark, in each of their parts."""
    texts = (TEXTS[number], marked("path", number))
    parts = ("0/{}/" + EVENT_FILE, "0/" + EVENT_FILE + "{}", "{}/" + EVENT_FILE, "{}" + EVENT_FILE, "{}")
    return [f"0/{EVENT_FILE}", *(part.replace("{}", text) for text in texts for part in parts)]


class HostileAgent(Agent):
    """An agent that announces who has attached to the second rank of its node."""

    def _announcement(self) -> AgentInfo:
        info, node = super()._announcement(), self._provider
        assert isinstance(node, HostileNode)
        targets = [
            replace(target, attachment=node.attachment() if target.port == node.port + 1 else None)
            for target in info.targets
        ]
        return replace(info, targets=tuple(targets))


@dataclass
class Fleet:
    """The agents, and the relay on which they listen."""

    relay: LocalRelay
    nodes: list[HostileNode]
    directory: Path

    @property
    def env(self) -> dict[str, str]:
        """The environment of a relay-client."""
        own = {"RELAY_CLIENT_DIR": str(self.directory / "own"), "RELAY_TUNNEL_KEY": b64encode(KEY).decode()}
        return access(self.relay, self.directory, "send", **own)


@contextlib.asynccontextmanager
async def hostile_fleet(directory: Path) -> AsyncIterator[Fleet]:
    """Run a relay, and an agent for each text."""
    logging.disable()  # pytest and its workers cannot take the log of the agents, which have no sink of ours
    async with contextlib.AsyncExitStack() as stack:
        stack.callback(logging.disable, logging.NOTSET)
        limits = Limits(max_listeners=len(TEXTS))
        relay = await stack.enter_async_context(local_relay(directory / "tls", limits=limits))
        local, _ = await stack.enter_async_context(local_server(echo))
        base = free_port()
        nodes = [HostileNode(number, base, local) for number in range(len(TEXTS))]
        for node in nodes:
            await stack.enter_async_context(agent(relay, node, HostileAgent))
        yield Fleet(relay, nodes, directory)


# Sinks.


@dataclass
class Shown:
    """What one sink has shown, and the harm in it."""

    texts: list[str]
    harm: list[tuple[str, str]]
    """Each with the field from which it comes."""

    def numbers(self, name: str) -> set[int]:
        """Return the numbers of the texts that were shown of a field."""
        return {int(number) for text in self.texts for field, number in MARK.findall(text) if field == name}

    def lacks(self, *names: str) -> dict[str, int]:
        """Return the fields of which not every text was shown, each with the number of those that were."""
        numbers = {name: len(self.numbers(name)) for name in names}
        return {name: number for name, number in numbers.items() if number != len(TEXTS)}


def harm_on_terminal(output: str) -> list[tuple[str, str]]:
    """Return the lines that a terminal interprets, or that are not relay-client's but look as if they were."""
    harm, name = [], ""
    for line in output.split("\n"):
        marks = MARK.findall(line)
        if not line.isprintable() or _FORGED.match(line):
            harm.append((marks[0][0] if marks else name, line))
        name = marks[-1][0] if marks else name
    return harm


_FORGED = re.compile(r"relay-client: (error: )?forged|\[tunnel\]|key = |\[b\]: |\(command:")
"""Matches the beginning of a line that a text of the corpus contains after an end of line."""


async def commands(fleet: Fleet) -> dict[str, Shown]:
    """Run a relay-client and all commands; return what the terminal, the log and the event stream have shown."""
    lines: list[str] = []
    outputs: list[str] = []
    port = str(fleet.nodes[0].port)
    async with program("relay_client", "--hc", HC, "--json", "--ports", port, env=fleet.env) as client:

        async def events(kind: str, count: int) -> None:
            async with timeout(DEADLINE):
                while sum(f'"event": "{kind}"' in line for line in lines) < count:
                    lines.append((await client.process.stdout.readline()).decode())

        await events("connected", len(TEXTS))
        for command in COMMANDS:
            finished = await run("relay_client", *command, env=fleet.env)
            outputs.append(finished.stdout + finished.stderr)
        for node in fleet.nodes:
            node.end()
        await events("ended", 2 * len(TEXTS))
        await run("relay_client", "stop", env=fleet.env)
        log = (await client.finish()).stderr
    shown = {"terminal": outputs, "log": [log], "events": lines}
    return {sink: Shown(texts, harm_on_terminal("\n".join(texts))) for sink, texts in shown.items()}


async def page(fleet: Fleet) -> dict[str, Shown]:
    """Open the page of a relay-client; return its JSON as it is sent, and its files."""
    answers: list[str] = []
    async with served_page(fleet.relay) as served, aiohttp.ClientSession(served.address) as http:
        async with http.post("/session", data=served.links[-1].partition("#")[2]) as response:
            headers = {"Authorization": f"Bearer {(await response.json())['key']}"}
        async with http.get("/updates", headers=headers) as response, timeout(DEADLINE):
            async for line in response.content:
                if line.startswith(b"data: "):
                    answers.append(line.decode().removeprefix("data: "))
                if f"{answers[-1:]}".count('"link":"connected"') == len(TEXTS):
                    break
        for path in ("/stacks", "/hang", "/values?path=loss", "/values?path=refused", "/differences?path=model"):
            async with http.get(path, headers=headers) as response:
                assert "application/json" == response.content_type
                answers.append(await response.text())
        files = [await (await http.get(path)).text() for path in FILES]
    return {"page": Shown(answers, harm_on_terminal("\n".join(answers))), "page files": Shown(files, [])}


async def mcp(fleet: Fleet) -> dict[str, Shown]:
    """Call the tools that read as a coding agent does; return what came out of `items`, and what else came."""
    from mcp import Client, StdioServerParameters
    from mcp.client.stdio import stdio_client

    command = ["-m", "relay_client", "--hc", HC, "mcp", "--audit-file", str(fleet.directory / "audit.jsonl")]
    env = environment(**fleet.env, PYTHONPATH=str(REPOSITORY))
    server = stdio_client(StdioServerParameters(command=sys.executable, args=command, env=env), errlog=sys.stderr)
    items, others = [], []
    async with Client(server, read_timeout_seconds=DEADLINE) as client:
        others += [tool.model_dump_json() for tool in (await client.list_tools()).tools]
        for tool, arguments in calls():
            result = await client.call_tool(tool, arguments)
            content = result.structured_content or {}
            items.append(json.dumps(content.pop("items", [])))
            others.append(json.dumps(content))
            others += [] if content else [block.model_dump_json() for block in result.content]
    return {"MCP": Shown(items, harm_on_terminal("\n".join(items))), "MCP notes": Shown(others, [])}


def calls() -> Iterator[tuple[str, dict[str, object]]]:
    """Yield calls of tools, for a few ranks each, because a result is limited."""
    yield "hang_verdict", {}
    yield "ranks", {}
    for first in range(0, 2 * len(TEXTS), 16):
        ranks = f"{first}-{min(first + 16, 2 * len(TEXTS)) - 1}"
        yield "stacks", {"ranks": ranks}
        yield "evaluate", {"expression": "loss", "ranks": ranks}
        yield "evaluate", {"expression": "refused", "ranks": ranks}
        yield "compare", {"expression": "model", "ranks": ranks}
    for rank in range(0, 2 * len(TEXTS), 2):
        yield "variables", {"rank": rank}


async def event_files(fleet: Fleet) -> dict[str, Shown]:
    """Copy the event files of all runs; return the names of the copies, and those that leave their directory."""
    copies = fleet.directory / "parent" / "copies"
    async with tunnels(fleet.relay) as client:
        await client.discover_all()
        await client.search.wait_for(lambda: True if len(client.roster) == len(TEXTS) else None, lambda _why: None)
        await LiveFiles(client, copies, lambda _run: True).copy_once()
    names = [str(path.relative_to(copies.parent)) for path in copies.parent.rglob("*")]
    unsafe = [name for name in names if not all(map(_FILE.fullmatch, name.split("/"))) or not name.startswith("copies")]
    return {"file names": Shown(names, [("path", name) for name in unsafe])}


_FILE = re.compile(r"[\w=,@+~%() .-]{1,255}")
"""Matches a name without separators, control characters and wildcards; `..` would leave the directory."""
