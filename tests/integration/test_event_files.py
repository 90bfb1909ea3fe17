"""Facts about the copies of event files, with real agents, tunnels and files."""

import contextlib
from pathlib import Path
from typing import Any

from relay_agent.node.in_agent.node_answers import list_files, read_data
from relay_client.tensorboard.server import LiveFiles
from relay_core.agent_api.event_files import MAX_CHUNK, EventDataRequest, EventFilesRequest
from tests.support.network.fleet import Node, agent, tunnels
from tests.support.network.relay import LocalRelay

NAME = "events.out.tfevents.1"


class JobNode(Node):
    """A node that serves the event files of a directory, and records which bytes it was asked for."""

    def __init__(self, directory: Path, **fields: Any) -> None:
        super().__init__(**fields)
        self.directory = directory
        self.asked: list[tuple[str, int]] = []

    async def answer(self, request: Any) -> Any:
        if isinstance(request, EventDataRequest):
            self.asked.append((request.path, request.offset))
            return read_data([str(self.directory)], request)
        if isinstance(request, EventFilesRequest):
            return list_files([str(self.directory)])
        return await super().answer(request)


async def test_only_new_bytes_are_copied(relay: LocalRelay, tmp_path: Path) -> None:
    """A copy continues at its end, also with a new client; a file that was replaced is copied again."""
    job, copies = tmp_path / "job", tmp_path / "copies"
    (job / "train").mkdir(parents=True)
    original = job / "train" / NAME
    original.write_bytes(bytes(range(256)) * 8192)
    node = JobNode(job, run="pear")
    async with agent(relay, node):
        for appended in (b"", b"more", b""):
            with original.open("ab") as opened:
                opened.write(appended)
            node.asked.clear()
            async with copying(relay, copies, agents=1) as live:
                await live.copy_once()
            (copy,) = copies.rglob(NAME)
            assert original.read_bytes() == copy.read_bytes()
            assert copies / "pear" == copy.parents[3]
            size = original.stat().st_size
            offsets = {b"more": [size - 4]}.get(appended, [] if copy.stat().st_size % MAX_CHUNK else [0, MAX_CHUNK])
            assert offsets == [offset for _, offset in node.asked]
        original.write_bytes(b"short")
        async with copying(relay, copies, agents=1) as live:
            await live.copy_once()
        assert b"short" == copy.read_bytes()


async def test_runs_that_are_not_chosen(relay: LocalRelay, tmp_path: Path) -> None:
    """A job whose run is not chosen receives no request, and an agent without this request causes no failure."""
    for name in ("pear", "plum"):
        (tmp_path / name).mkdir()
        (tmp_path / name / NAME).write_bytes(b"x")
    pear, plum = JobNode(tmp_path / "pear", run="pear"), JobNode(tmp_path / "plum", run="plum")
    copies = tmp_path / "copies"
    old = Node(run="pear")
    async with (
        agent(relay, pear),
        agent(relay, plum),
        agent(relay, old),
        copying(relay, copies, agents=3) as live,
    ):
        await live.copy_once()
    assert ([], 1) == (plum.asked, len(list(copies.rglob(NAME))))


@contextlib.asynccontextmanager
async def copying(relay: LocalRelay, directory: Path, *, agents: int) -> Any:
    """Copy the files of the run `pear` with a new client that has found all agents."""
    async with tunnels(relay) as client:
        await client.discover_all()
        await client.search.wait_for(lambda: True if len(client.roster) == agents else None, lambda _why: None)
        yield LiveFiles(client, directory, lambda run: run == "pear")
