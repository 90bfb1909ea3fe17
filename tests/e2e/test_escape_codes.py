"""Facts about escape codes in the tables of the real relay-client, on a terminal and in a pipe."""

import asyncio
import contextlib
import re
import time
from base64 import b64encode
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from relay_core.agent_api.usage import NodeUsage, ProcessUsage
from tests.support.machine.deadline import DEADLINE
from tests.support.machine.ports import free_port
from tests.support.machine.programs import program, run, stop
from tests.support.machine.screen import client_on, screen
from tests.support.network.fleet import KEY, Node, node_of
from tests.support.network.relay import HC, LocalRelay

pytestmark = pytest.mark.e2e

STYLE = re.compile("\x1b\\[[0-9;]*m")
"""A colour, or bold text (SGR, ECMA-48 section 8.3.117)."""


@pytest.fixture
def env(relay: LocalRelay) -> dict[str, str]:
    """The environment of a client of these agents, in which styles are not turned off."""
    access = f"{relay.connection_string('send')};TunnelKey={b64encode(KEY).decode()}"
    return {"RELAY_CONNECTION_STRING": access, "RELAY_CA_FILE": str(relay.ca_file), "NO_COLOR": ""}


@pytest_asyncio.fixture
async def node(relay: LocalRelay) -> AsyncIterator[Node]:
    """A node with a monitor and one rank."""
    port = free_port()
    async with node_of(relay, port, fields={"host": "node-1"}, script="train.py", state="running") as running:
        use(running, 0)
        yield running


def use(node: Node, memory: int) -> None:
    """Announce a sample of the monitor."""
    (port,) = node.processes
    node.fields["usage"] = NodeUsage(time.time(), 2.0, 8, 2**30, 2**31, (), (ProcessUsage(port, 1.2, memory << 20),))
    node.publish()


@pytest.mark.usefixtures("node")
@pytest.mark.parametrize("uses_client", [False, True])
@pytest.mark.parametrize(("no_color", "has_codes"), [("", True), ("1", False)])
async def test_targets_on_a_terminal(
    env: dict[str, str], tmp_path: Path, uses_client: bool, no_color: str, has_codes: bool
) -> None:
    """The heading is bold; with NO_COLOR, the same text has no escape codes at all, whatever a running client has."""
    here = {"RELAY_CLIENT_DIR": str(tmp_path / "own")}
    async with contextlib.AsyncExitStack() as stack:
        if uses_client:
            settings = {**env, **here, "NO_COLOR": "" if no_color else "1", "TERM": "dumb"}
            command = ("relay_client", "--hc", HC, "--ports", str(free_port()))
            await (await stack.enter_async_context(program(*command, env=settings))).line("ready on")
        shown, descriptor = await stack.enter_async_context(screen())
        variables = {**({} if uses_client else env), **here, "NO_COLOR": no_color}
        client = await stack.enter_async_context(client_on(descriptor, variables, "--hc", HC, "targets"))
        assert 0 == await asyncio.wait_for(client.wait(), DEADLINE)
        await shown.when(lambda: " 1.2" in shown.text)
        assert has_codes == ("\x1b" in shown.text)
        (heading, row) = shown.lines
        assert ["cpu", "mem"] == heading.split()[7:9]
        assert ["running", "1.2", "0B"] == row.split()[-3:]


@pytest.mark.usefixtures("node")
async def test_targets_in_a_pipe(env: dict[str, str]) -> None:
    """A pipe gets no escape codes even if styles are requested, and one line for each target."""
    finished = await run("relay_client", "--hc", HC, "targets", env={**env, "FORCE_COLOR": "1", "TERM": "xterm"})
    assert 0 == finished.status
    assert "\x1b" not in finished.stdout + finished.stderr
    heading, row = finished.stdout.splitlines()
    assert [" 1.2"] == [row[heading.index("cpu") : heading.index("mem")].rstrip()]


@pytest.mark.parametrize(("no_color", "has_styles"), [("", True), ("1", False)])
async def test_live_table(env: dict[str, str], node: Node, no_color: str, has_styles: bool) -> None:
    """With NO_COLOR the table is still updated in place, but no character has a colour or is bold."""
    (port,) = node.processes
    async with (
        screen() as (shown, descriptor),
        client_on(descriptor, {**env, "NO_COLOR": no_color}, "--hc", HC, "--ports", str(port)),
    ):
        for memory in (300, 700):
            use(node, memory)
            await shown.when(lambda memory=memory: any(f"1.2  {memory}M" in line for line in shown.lines))
        assert has_styles == bool(STYLE.search(shown.text))


async def test_live_numbers_in_a_pipe(env: dict[str, str], node: Node) -> None:
    """Numbers that change are not a reason for a line; changes of state are, without escape codes."""
    (port,) = node.processes
    async with program("relay_client", "--hc", HC, "--ports", str(port), env=env) as client:
        await client.line("ready on")
        node.change(port, state="crashed", detail="ValueError: first")
        await client.line("crashed: ValueError: first")
        before = client.stderr
        status = ("status", "--json", "--client", str(client.process.pid))
        for memory in (100, 101):
            use(node, memory)
            while f'"memory": {memory << 20}' not in (await run("relay_client", *status, env=env)).stdout:
                pass
        node.change(port, state="crashed", detail="ValueError: second")
        await client.line("crashed: ValueError: second")
        (crashed,) = (line for line in client.stderr.removeprefix(before).splitlines() if "tunnel to" not in line)
        assert "crashed: ValueError: second" in crashed
        finished = await stop(client)
        assert "\x1b" not in finished.stdout + finished.stderr
        assert "" == finished.stdout
