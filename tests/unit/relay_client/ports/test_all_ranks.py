"""Facts about the outputs of the session of all ranks; its connections are in tests/integration/test_all_ranks.py."""

import asyncio
import contextlib
from types import SimpleNamespace

import pytest

from relay_client.job_session import wire
from relay_client.job_session.members import RankName
from relay_client.ports.all_ranks import JobConnection, RankLink, _Link
from relay_client.ports.connection_records import Connections
from relay_client.ports.editor_link import PortContext
from relay_client.ports.local_port import all_ranks_port
from relay_core.dap.framing import MessageDecoder


class Endpoint:
    """Keeps what the editor receives, one element for each write."""

    def __init__(self) -> None:
        self.written: list[list[str]] = []

    def write(self, data: bytes) -> None:
        self.written.append([message["body"]["output"] for message in MessageDecoder().receive_data(data)])


async def test_outputs_of_a_child_that_joins(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first request to a child process leaves in the flush that opens its connection; none may follow."""
    endpoint = Endpoint()
    tunnels = SimpleNamespace(joining_writes=contextlib.nullcontext)
    context = PortContext(tunnels, Connections(lambda: None))  # type: ignore[arg-type]
    connection = JobConnection(context, all_ranks_port(1), endpoint)  # type: ignore[arg-type]
    monkeypatch.setattr(connection, "_open_child", lambda _number, pid: connection.session.show(f"joined: {pid}"))
    for line in ("one", "two"):
        connection.session.show(line)
    connection.session.wire.put(wire.OpenChild(1, 41))
    connection.flush()
    assert [["relay-client: one\n", "relay-client: two\n"], ["relay-client: joined: 41\n"]] == endpoint.written


async def test_a_rank_that_joins_while_the_editor_is_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its debugger waits like those of the others, so that its output is not kept here without limit."""
    tunnels = SimpleNamespace(joining_writes=contextlib.nullcontext)
    context = PortContext(tunnels, Connections(lambda: None))  # type: ignore[arg-type]
    connection = JobConnection(context, all_ranks_port(1), Endpoint())  # type: ignore[arg-type]
    monkeypatch.setattr(connection, "_carry", lambda _number, _end, _port: asyncio.sleep(0))
    paused: list[str] = []
    handler = SimpleNamespace(
        local_writing_paused=lambda: paused.append("paused"), local_writing_resumed=lambda: paused.append("resumed")
    )
    connection.local_writing_paused()
    claim = SimpleNamespace(agent=SimpleNamespace(id=b""), target=SimpleNamespace(port=5678, pid=1))
    connection._open(claim, RankName("rank 0", 0, "rank 0 on node-1"))  # type: ignore[arg-type]
    connection._links[1].end.deliver_to(handler)  # type: ignore[arg-type]
    connection.local_writing_resumed()
    assert ["paused", "resumed"] == paused
    await connection._tasks.cancel_all()


@pytest.mark.parametrize("body", [b"{x}", b"[1]", b'{"seq":1}', b"\xff", b""])
async def test_a_rank_that_sends_what_is_not_a_message(body: bytes) -> None:
    """The rank is left out with one line, and the connection to it is closed, so that it is not held."""
    endpoint = Endpoint()
    tunnels = SimpleNamespace(joining_writes=contextlib.nullcontext)
    context = PortContext(tunnels, Connections(lambda: None))  # type: ignore[arg-type]
    connection = JobConnection(context, all_ranks_port(1), endpoint)  # type: ignore[arg-type]
    name = RankName("rank 0", 0, "rank 0 on node-1")
    end = RankLink(lambda _data: None, lambda: None)
    connection._links[1] = _Link((b"", 1, 2), None, name, end, MessageDecoder())  # type: ignore[arg-type]
    connection.session.join(1, name)
    for _ in range(2):
        connection._received(1, b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
    connection.flush()
    [[line]] = endpoint.written
    assert line.startswith("relay-client: rank 0 is left out: the peer does not use the Debug Adapter Protocol")
    assert end.ended.is_set()
