"""Facts about an agent whose names, states and answers contain line breaks and escape sequences."""

from base64 import b64encode
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from relay_core.agent_api.announcement import Ending
from relay_core.agent_api.collectives import GroupRecord, NodeCollectives, Operation, ProcessCollectives
from relay_core.agent_api.evaluation import Evaluate, NodeValues, Value
from relay_core.agent_api.members import Member
from relay_core.agent_api.requests import Collectives, Stacks
from relay_core.agent_api.stacks import Frame, NodeStacks, ProcessStacks, ThreadStack
from tests.support.fleet import KEY, Node, agent, process
from tests.support.ports import free_port
from tests.support.programs import program, run
from tests.support.relay import HC, LocalRelay
from tests.support.run_job import access

pytestmark = pytest.mark.e2e

FORGED = "alice\nrelay-client: error: forged\r\x1b[2J\x9b31m\u2028end\u202e"
FRAMES = (Frame(FORGED, 7, FORGED, {FORGED: FORGED}),)
COMMANDS = [
    ["targets"],
    ["stacks", "--locals"],
    ["hang"],
    ["eval", "loss"],
    ["diff", "model"],
]
OF_A_RUNNING_CLIENT = [["status"], ["attach", "0"], ["release", "0"], ["logs"]]


class Forger(Node):
    """A node whose answers consist of such texts."""

    async def answer(self, request: Any) -> Any:
        stacks = ProcessStacks(self.port, 0, 7, FORGED, (ThreadStack(FORGED, 1, True, FRAMES),), FORGED)
        if isinstance(request, Stacks):
            return NodeStacks((stacks,))
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


def suspicious(output: str) -> list[str]:
    """Return the lines that are not printable, or that an agent has forged."""
    lines = output.split("\n")
    return [line for line in lines if not line.isprintable() or line.startswith("relay-client: error: forged")]
