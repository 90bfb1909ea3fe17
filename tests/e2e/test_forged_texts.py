"""Facts about an agent whose names, states and answers contain line breaks and escape sequences."""

import re
from base64 import b64encode
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from relay_core.agent_api.announcement import Ending
from relay_core.agent_api.collectives import GroupRecord, NodeCollectives, Operation, ProcessCollectives
from relay_core.agent_api.evaluation import Evaluate, NodeValues, Value
from relay_core.agent_api.members import Member
from relay_core.agent_api.questions import NodeReplies, ReadEnvironment, Reply
from relay_core.agent_api.requests import Collectives, Stacks
from relay_core.agent_api.stacks import Frame, NodeStacks, ProcessStacks, ThreadStack
from tests.support.fleet import KEY, Node, agent, process
from tests.support.pdb_jobs import looping, scripted
from tests.support.ports import free_port
from tests.support.programs import program, run
from tests.support.relay import HC, LocalRelay
from tests.support.run_job import access

pytestmark = pytest.mark.e2e

CONTROLS = "\r\x1b[2J\x1b]52;c;cGFzdGVk\x07\x1b]8;;http://host.invalid\x1b\\\\\x9b31m\u2028end\u202e"
"""Codes that clear the screen, fill the clipboard, begin a link, set a colour and reverse the writing direction."""
FORGED = f"alice\nrelay-client: error: forged{CONTROLS}"
FRAMES = (Frame(FORGED, 7, FORGED, {FORGED: FORGED}),)
COMMANDS = [
    ["targets"],
    ["stacks", "--locals"],
    ["hang"],
    ["eval", "loss"],
    ["diff", "model"],
    ["env", "all"],
]
OF_A_RUNNING_CLIENT = [["status"], ["attach", "0"], ["release", "0"], ["logs"]]


HOSTILE_JOB = f"""
import sys, threading, time
from pathlib import Path

FORGED = {FORGED!r} + "\\udc80"

class Forged(Exception):
    def __repr__(self):
        return FORGED.replace("\\n", " ")

def fail():
    raise Forged(FORGED)

def work(value=Forged()):
    print("\\x1b[31mred\\x1b[0m" + FORGED.replace("\\n", " ").replace("\\udc80", ""))
    time.sleep(0.01)

code = compile("while True: work()", FORGED, "exec").replace(co_name=FORGED)
threading.Thread(target=threading.Event().wait, name=FORGED.replace("\\udc80", ""), daemon=True).start()
Path(sys.argv[2]).write_text("1")
exec(code, {{"work": work}})
"""


class Forger(Node):
    """A node whose answers consist of such texts."""

    async def answer(self, request: Any) -> Any:
        stacks = ProcessStacks(self.port, 0, 7, FORGED, (ThreadStack(FORGED, 1, True, FRAMES),), FORGED)
        if isinstance(request, Stacks):
            return NodeStacks((stacks,))
        if isinstance(request, ReadEnvironment):
            return NodeReplies((Reply(self.port, 0, {"variables": {FORGED: FORGED}, "left_out": 0}),))
        if isinstance(request, Evaluate):
            return NodeValues((Value((Member(self.port, 0),), FORGED, FORGED),))
        if isinstance(request, Collectives):
            group = GroupRecord(FORGED, FORGED, "other", (0, 1), 1, 0, (Operation(1, FORGED, FORGED, FORGED),))
            return NodeCollectives(
                (ProcessCollectives(self.port, FORGED, 0, 2, (group,), FORGED, FORGED, stacks, FORGED),)
            )
        return await super().answer(request)

    @property
    def port(self) -> int:
        return next(iter(self.processes))


@pytest.fixture
async def env(relay: LocalRelay, tmp_path: Path) -> AsyncIterator[dict[str, str]]:
    """The environment of a relay-client, while such an agent runs."""
    fields = {"rank": 0, "world": 1, "pid": 7, "script": FORGED, "cwd": FORGED, "state": "crashed", "detail": FORGED}
    async with process(free_port(), FORGED, holder=FORGED, **fields) as rank:
        ending = Ending(rank.logical_port + 1, 8, status=1, error=FORGED)
        node = Forger(rank, host=FORGED, run=FORGED, cwd=FORGED, endings=(ending,))
        async with agent(relay, node):
            key = b64encode(KEY).decode()
            own = {"RELAY_CLIENT_DIR": str(tmp_path / "own"), "RELAY_TUNNEL_KEY": key}
            yield access(relay, tmp_path, "send", **own) | {"PORT": str(rank.logical_port)}


async def test_commands(env: dict[str, str]) -> None:
    """All that a command writes is printable, and no line looks like one of relay-client's own."""
    for command in COMMANDS:
        finished = await run("relay_client", "--hc", HC, *command, env=env)
        assert "alice" in finished.stdout + finished.stderr, command
        assert [] == suspicious(finished.stdout + finished.stderr), command


async def test_running_client(env: dict[str, str]) -> None:
    """So is the log of a relay-client, and what other commands show of it."""
    async with program("relay_client", "--hc", HC, "--ports", env["PORT"], env=env) as client:
        await client.line("ready on")
        for command in OF_A_RUNNING_CLIENT:
            finished = await run("relay_client", *command, env=env)
            assert [] == suspicious(finished.stdout + finished.stderr), command
        stopped = await run("relay_client", "stop", env=env)
        assert 0 == stopped.status
        assert [] == suspicious((await client.finish()).stderr)


async def test_prompt(tmp_path: Path) -> None:
    """At the prompt of the terminal debugger, a job's texts are printable lines; its output may also have colours."""
    commands = ["w", "locals", "p value", "whatis value", "p fail()", "fail()", "threads", *"nnn", "u", "l", "q"]
    async with looping(tmp_path, HOSTILE_JOB) as found:
        where = f"{found.script}:{found.line('    print')}"
        status, shown, errors = await scripted(found.port, *commands, breakpoints=[where], stop=False)
    assert 0 == status, errors
    assert 5 <= shown.count("cGFzdGVk")
    assert "\x1b[31mred\x1b[0m" in shown
    assert [] == suspicious(re.sub(r"\x1b\[[0-9;]*m|\r|\t", "", shown) + errors)


def suspicious(output: str) -> list[str]:
    """Return the lines that are not printable, or that an agent has forged."""
    lines = output.split("\n")
    return [line for line in lines if not line.isprintable() or line.startswith("relay-client: error: forged")]
