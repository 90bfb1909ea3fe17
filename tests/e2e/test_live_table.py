"""Facts about the table that relay-client keeps on a terminal, seen as a person sees it."""

import asyncio
import signal
import time
from base64 import b64encode
from pathlib import Path

import pytest

from relay_core.agent_api.usage import GpuShare, GpuUsage, NodeUsage, ProcessUsage
from tests.support.machine.deadline import DEADLINE
from tests.support.machine.ports import free_port
from tests.support.machine.screen import WIDTH, Screen, client_on, screen
from tests.support.machine.tmux import MISSING, client_in_tmux
from tests.support.network.fleet import KEY, node_of
from tests.support.network.relay import LocalRelay

pytestmark = pytest.mark.e2e

MIB, GIB = 2**20, 2**30
ERASE, BEGIN, END = "\x1b[J", "\x1b[?2026h", "\x1b[?2026l"
"""A terminal shows what is between the last two at once, so that erasing the table does not flicker."""


@pytest.fixture
def env(relay: LocalRelay) -> dict[str, str]:
    """The environment of a client of these agents."""
    access = f"{relay.connection_string('send')};TunnelKey={b64encode(KEY).decode()}"
    return {"RELAY_CONNECTION_STRING": access, "RELAY_CA_FILE": str(relay.ca_file)}


def table(shown: Screen) -> list[list[str]]:
    """The words of what stands below the last event line."""
    events = [number for number, line in enumerate(shown.lines) if line.startswith("relay-client: ")]
    return [line.split() for line in shown.lines[max(events, default=-1) + 1 :]]


async def test_the_table_follows_the_ranks(relay: LocalRelay, env: dict[str, str]) -> None:
    """Each rank has a line with its current state; a rank that leaves has none; each event line stands above, once."""
    first, second = free_port(), free_port()
    async with (
        node_of(relay, first, second, fields={"host": "node-1"}, script="train.py", state="running") as node,
        screen() as (shown, descriptor),
        client_on(descriptor, env, "--ports", f"{first},{second}"),
    ):
        heading = ["node", "rank", "port", "pid", "script", "state", "since", "held", "by"]
        rows = [["node-1", str(port), "train.py", "running"] for port in sorted([first, second])]
        await shown.when(lambda: table(shown) == [heading, *rows])
        node.change(second, state="crashed", detail="ValueError: no", until=time.time() + 605)
        crashed = ["node-1", str(second), "train.py", "crashed:", "ValueError:", "no"]
        await shown.when(lambda: any(row[: len(crashed)] == crashed for row in table(shown)))
        node.remove(second)
        await shown.when(lambda: table(shown) == [heading, ["node-1", str(first), "train.py", "running"]])
        ready = [line for line in shown.lines if line.startswith("relay-client: ready on 127.0.0.1, port")]
        assert 1 == len(ready)


async def test_the_numbers_of_the_monitor(relay: LocalRelay, env: dict[str, str]) -> None:
    """Numbers change in place, in the same lines and in one update; a node without a monitor has none."""
    monitored, other = free_port(), free_port()
    fields = {"script": "train.py", "state": "running"}
    async with (
        node_of(relay, monitored, fields={"host": "node-1", "node_rank": 1}, **fields) as node,
        node_of(relay, other, fields={"host": "node-2", "node_rank": 2}, **fields),
        screen() as (shown, descriptor),
        client_on(descriptor, env, "--ports", f"{monitored},{other}"),
    ):
        quiet = ["2", "node-2", str(other), "train.py", "running"]
        await shown.when(lambda: len(table(shown)) == 3 and 2 == sum("tunnel to" in line for line in shown.lines))
        assert "cpu" not in table(shown)[0]
        events = [line for line in shown.lines if line.startswith("relay-client: ")]
        gpus = (GpuUsage("H100", 0.87, 31 * GIB, 80 * GIB),)
        for cpu, memory, gpu, cells in (
            (1.2, 3.14 * GIB, (), ["1.2", "3.1G"]),
            (12.34, 512 * MIB, gpus, ["12.3", "512M", "0", "9.5G", "87%", "31G"]),
            (0.0, 98 * MIB, gpus, ["0.0", "98M", "0", "9.5G", "87%", "31G"]),
        ):
            shares = (GpuShare(0, int(9.5 * GIB)),) if gpu else ()
            process = ProcessUsage(monitored, cpu, int(memory), None, shares)
            node.fields["usage"] = NodeUsage(time.time(), 2.0, 8, GIB, 2 * GIB, gpu, (process,))
            node.publish()
            heading = ["cpu", "mem", *["gpu", "node", "gpu"][: 3 * len(gpu)], "held", "by"]
            row = ["1", "node-1", str(monitored), "train.py", "running", *cells]
            await shown.when(lambda row=row: [row, quiet] == table(shown)[1:])
            assert heading == table(shown)[0][-len(heading) :]
            assert [row, quiet] == table(shown)[1:]
        assert events == [line for line in shown.lines if line.startswith("relay-client: ")]
        before, *updates, _latest = shown.text.split(BEGIN)
        assert ERASE not in before
        assert all((1, END) == (update.count(ERASE), update[-len(END) :]) for update in updates)


async def test_the_screen_is_not_erased_from_its_corner(relay: LocalRelay, env: dict[str, str]) -> None:
    """The table is never erased from the first column: on the first line, tmux would keep a copy of it each time."""
    port = free_port()
    async with (
        node_of(relay, port, script="train.py", state="running") as node,
        screen() as (shown, descriptor),
        client_on(descriptor, env, "--ports", str(port)),
    ):
        await shown.when(lambda: any("train.py" in row for row in table(shown)))
        node.change(port, script="other.py")
        await shown.when(lambda: any("other.py" in row for row in table(shown)))
        assert {1} == shown.erased_from


async def test_an_event_line_is_not_cut(relay: LocalRelay, env: dict[str, str]) -> None:
    """A sentence that is longer than the terminal is wide is shown whole, in one piece."""
    port = free_port()
    async with (
        node_of(relay, port, fields={"host": "node-1"}, rank=3, state="running") as node,
        screen() as (shown, descriptor),
        client_on(descriptor, env, "--ports", str(port)),
    ):
        await shown.when(lambda: any("running" in row for row in table(shown)))
        detail = "ValueError: " + "x" * WIDTH
        node.change(port, state="crashed", detail=detail, until=time.time() + 605)
        crashed = f"relay-client: warning: rank 3 on node-1 crashed: {detail}"
        await shown.until(f"{crashed}; press F5 to attach to port {port}")


async def test_the_table_goes_with_the_client(relay: LocalRelay, env: dict[str, str]) -> None:
    """After Ctrl-C the event lines remain, and nothing that would look like the present state."""
    port = free_port()
    async with (
        node_of(relay, port, rank=3, script="train.py"),
        screen() as (shown, descriptor),
        client_on(descriptor, env, "--ports", str(port)) as client,
    ):
        await shown.when(lambda: any("train.py" in row for row in table(shown)))
        client.send_signal(signal.SIGINT)
        assert 0 == await asyncio.wait_for(client.wait(), DEADLINE)
        await shown.when(lambda: not table(shown))
        assert any("ready on" in line for line in shown.lines)


async def test_elsewhere_there_are_lines_only(relay: LocalRelay, env: dict[str, str]) -> None:
    """A terminal on which nothing can be erased gets event lines, without control codes."""
    port = free_port()
    async with (
        node_of(relay, port, rank=3, script="train.py", state="running") as node,
        screen() as (shown, descriptor),
        client_on(descriptor, {**env, "TERM": "dumb"}, "--ports", str(port)),
    ):
        await shown.until("ready on")
        node.change(port, state="crashed", detail="ValueError: no", until=time.time() + 605)
        await shown.until("within 10 min\r\n")
        assert "\x1b" not in shown.text
        assert not table(shown)


@pytest.mark.skipif(bool(MISSING), reason=MISSING)
async def test_a_terminal_that_is_resized(relay: LocalRelay, env: dict[str, str], tmp_path: Path) -> None:
    """However often tmux changes its width, the table is there once, and every event line is whole."""
    ports = [free_port() for _ in range(8)]
    async with (
        node_of(relay, *ports, fields={"host": "node-1"}, script="train.py", state="running") as node,
        client_in_tmux(tmp_path, env, "--ports", ",".join(map(str, ports))) as terminal,
    ):
        await terminal.until("train.py")
        for number, width in enumerate((40, 110, 30, 70, 25, 120)):
            await terminal.resize(width, 30)
            node.change(ports[0], state="crashed", detail=f"ValueError: {number}", until=time.time() + 605)
            await terminal.until(f"port {ports[0]} on node-1 crashed: ValueError: {number};")
        lines = await terminal.until("train.py  crashed: ValueError: 5")
        assert 1 == sum(line.startswith("node ") for line in lines), "\n".join(lines)
        assert 8 == sum(line.startswith("node-1 ") for line in lines)
        assert 4 + 6 == sum(line.startswith("relay-client: ") for line in lines), "\n".join(lines)
