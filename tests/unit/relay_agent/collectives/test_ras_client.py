"""Facts about asking NCCL RAS on this node; what answers here does so as NCCL does."""

import asyncio
from pathlib import Path

import pytest

from relay_agent.collectives import ras
from relay_agent.collectives.ras import ask_ras
from relay_core.agent_api.collectives import RasCommunicator, RasStatus
from tests.support.machine.deadline import DEADLINE
from tests.support.machine.other_user import listening_stranger, needs_owners, needs_second_user
from tests.support.machine.ports import free_port
from tests.support.machine.streams import Handler, local_server
from tests.unit.relay_agent.collectives.test_ras_status import TEXT, answer, missing, rank


def ras_server(*, knows_json: bool = True, received: list[str] | None = None) -> Handler:
    """Return a server that answers line by line as NCCL does, and ends the connection after a status."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        as_json = False
        while line := (await reader.readline()).decode().strip():
            (received if received is not None else []).append(line)
            command = line.lower()
            if command == "set format json" and knows_json:
                as_json = True
                writer.write(b"OK\n")
            elif command.startswith("timeout "):
                writer.write(b"OK\n")
            elif command == "verbose status":
                text = answer([rank(0)], [missing(1, unresponsive=True)]) if as_json else TEXT
                writer.write(text.encode())
                return
            else:
                writer.write(f"ERROR: Unknown command {line}\n".encode())

    return serve


async def ask(port: int) -> RasStatus | None:
    return await ask_ras({"NCCL_RAS_ADDR": f"127.0.0.1:{port}"})


async def test_json() -> None:
    """A version that knows JSON is asked for that."""
    received: list[str] = []
    async with local_server(ras_server(received=received)) as (port, _):
        status = await ask(port)
    assert ["SET FORMAT json", "TIMEOUT 2", "VERBOSE STATUS"] == received
    assert status is not None
    assert ("2.29.1", "") == (status.version, status.error)
    assert "rank 1 (pid 1524345 on 172.16.64.245) is not responding" == status.communicators[0].remarks[0]


@pytest.mark.parametrize(
    ("name", "communicator", "size", "remarks"),
    [
        ("ras-json", "81c2d0d0464555a3", 2, ("AllReduce operations launched: 6 by rank 0 and 5 by rank 1",)),
        (
            "ras-text",
            "81c2d0d0464555a3",
            0,
            (
                "MISMATCH",
                "Communicator ranks have different AllReduce operation counts",
                "Rank 0 has launched up to operation 6 -- GPU 0 managed by process 481 on node 127.0.0.1",
                "Rank 1 has launched up to operation 5 -- GPU 0 managed by process 482 on node 127.0.0.1",
            ),
        ),
        (
            "ras-rank-killed",
            "214e911b37ef7540",
            4,
            (
                "rank 2 (pid 514 on 127.0.0.1) is not responding",
                "ranks 0-1,3 reported an asynchronous error",
            ),
        ),
    ],
)
async def test_recorded_answers(name: str, communicator: str, size: int, remarks: tuple[str, ...]) -> None:
    """What NCCL 2.28.9 answered on a GPU: if rank 1 is behind, in both formats; after SIGKILL, without a comma."""
    recorded = Path(__file__).with_name("recorded") / f"{name}.txt"

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"VERBOSE STATUS\n")
        writer.write(recorded.read_bytes())

    async with local_server(serve) as (port, _):
        status = await ask(port)
    assert status == RasStatus("2.28.9", (RasCommunicator(communicator, size, remarks),))


async def test_text() -> None:
    """A version that does not know JSON refuses the format and answers with text."""
    async with local_server(ras_server(knows_json=False)) as (port, _):
        status = await ask(port)
    assert status is not None
    assert ("2.26.2", "") == (status.version, status.error)
    assert "The missing rank: 21" == status.communicators[0].remarks[2]


async def test_nobody_listens() -> None:
    """Without NCCL, nothing is reported, and a setting that is not an address is not used."""
    assert await ask(free_port()) is None
    assert await ask_ras({"NCCL_RAS_ADDR": "localhost"}) is None


async def test_disabled() -> None:
    """Where the job has switched RAS off, its port is not connected to."""
    async with local_server(ras_server()) as (port, connections):
        assert await ask_ras({"NCCL_RAS_ADDR": f"127.0.0.1:{port}", "NCCL_RAS_ENABLE": "0"}) is None
    assert [] == connections


async def test_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that accepts and does not answer is an error after the timeout."""
    monkeypatch.setattr(ras, "RAS_TIMEOUT", 0.05)

    async def silent(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with local_server(silent) as (port, _):
        assert RasStatus(error="NCCL RAS did not answer within 0.05 s") == await ask(port)


@needs_owners
@needs_second_user
async def test_another_user_listens() -> None:
    """What another user's program would answer is not read, and it receives no request."""
    port = free_port()
    async with listening_stranger(port) as stranger:
        assert await ask(port) is None
        assert b"accepted \n" == await asyncio.wait_for(stranger.readline(), DEADLINE)
