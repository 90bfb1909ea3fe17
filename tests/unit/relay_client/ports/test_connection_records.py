"""Facts about connections: interrupted tunnels, and ports that nobody uses; the rest is tested in test_control.py."""

import asyncio
import time

from relay_client.ports.connection_records import ConnectionRecord, Connections
from relay_core.layers.layer import ToLocal, ToPeer
from relay_core.layers.stop_observer import StopObserver

STOPPED = {"seq": 1, "type": "event", "event": "stopped", "body": {"reason": "step", "threadId": 1}}
NEXT = {"seq": 2, "type": "request", "command": "next", "arguments": {"threadId": 1}}


def stopped_record() -> tuple[ConnectionRecord, StopObserver]:
    record = ConnectionRecord(1, 5678, lambda: None)
    observer = record.observer()
    observer.receive_peer(ToLocal.of(STOPPED), 0)
    return record, observer


def test_a_step_during_an_interruption() -> None:
    """The process is shown as stopped until the tunnel has a connection, because the request has not reached it."""
    record, observer = stopped_record()
    record.interrupted(is_interrupted=True)
    observer.receive_local(ToPeer.of(NEXT), 0)
    stop = record.describe().stop
    assert stop is not None
    assert "step" == stop.reason
    record.interrupted(is_interrupted=False)
    assert record.describe().stop is None


def test_a_stop_that_arrives_with_the_connection() -> None:
    """The stop after the step stays, although it is known before the tunnel is."""
    record, observer = stopped_record()
    record.interrupted(is_interrupted=True)
    observer.receive_local(ToPeer.of(NEXT), 0)
    observer.receive_peer(ToLocal.of(STOPPED), 0)
    record.interrupted(is_interrupted=False)
    assert record.describe().stop is not None


def test_a_step_without_an_interruption() -> None:
    """The process is shown as running at once."""
    record, observer = stopped_record()
    record.interrupted(is_interrupted=False)
    observer.receive_local(ToPeer.of(NEXT), 0)
    assert record.describe().stop is None


async def test_ports_that_nobody_uses() -> None:
    """They are idle once the time since the start has passed."""
    started = time.monotonic()
    await Connections(lambda: None).until_idle(0.05)
    assert time.monotonic() >= started + 0.05


async def test_a_connection_keeps_the_ports_in_use() -> None:
    """The time starts again when the last of several connections ends."""
    connections = Connections(lambda: None)
    records = [connections.add(5678), connections.add(5679)]
    waiting = asyncio.ensure_future(connections.until_idle(0.05))
    for record in records:
        await asyncio.wait([waiting], timeout=0.12)
        assert not waiting.done()
        ended = time.monotonic()
        connections.remove(record)
    await waiting
    assert time.monotonic() >= ended + 0.05


async def test_an_editor_without_a_rank_keeps_the_ports_in_use() -> None:
    """An editor on the port of all ranks counts before it is connected to a rank."""
    connections = Connections(lambda: None)
    waiting = asyncio.ensure_future(connections.until_idle(0.05))
    with connections.in_use():
        await asyncio.wait([waiting], timeout=0.12)
        assert not waiting.done()
    await waiting
