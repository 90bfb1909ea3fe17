"""WebSocket frames without a socket: `relay_core/ws` beside the sans-IO core of the `websockets` package.

Both read the same bytes, in pieces as a socket delivers them, and are asked for the payload and for what they would
send. Those who read are a client (the relay sends it frames of 32 KiB) and a relay (a client masks, and makes one frame
of each message). The turns alternate, and each figure is the median. Memory is the peak of `tracemalloc` while one
message that arrives as one frame is read and its payload forgotten.
"""

from __future__ import annotations

import asyncio
import gc
import importlib.metadata
import os
import statistics
import time
import tracemalloc
from collections.abc import Callable, Sequence

from websockets.client import ClientProtocol
from websockets.frames import Frame
from websockets.protocol import OPEN
from websockets.server import ServerProtocol
from websockets.uri import parse_uri

from relay_core.ws.frames import BINARY, encode_frame, encode_masked
from relay_core.ws.machine import WebSocketMachine
from tests.bench.report import Row
from tests.bench.stage import Stage

__all__ = ["frames"]

KIB = 1024
MIB = 1024 * KIB
OURS = "relay_core/ws"
LIBRARY = f"websockets {importlib.metadata.version('websockets')}"
READ = 128 * KIB
"""Bytes in the buffer of a connection; a busy socket fills it."""
SEGMENT = 16 * KIB
"""Bytes of a TLS record; a socket often returns no more."""
SMALL = 200
"""Bytes of a message in an interactive session."""

Consume = Callable[[bytes], int]
"""Reads a piece, and returns how many bytes of payload it contained."""


async def frames(_stage: Stage, *, quick: bool) -> list[Row]:
    """Read and write large and small messages."""
    return await asyncio.to_thread(_measure, 3 if quick else 15)


def _measure(turns: int) -> list[Row]:
    total = 32 * MIB
    by_relay = encode_frame(BINARY, os.urandom(32 * KIB)) * (total // (32 * KIB))
    by_client = encode_masked(BINARY, os.urandom(128 * KIB), os.urandom(4)) * (total // (128 * KIB))
    whole = encode_masked(BINARY, os.urandom(total), os.urandom(4))
    client, relay = (_our_client, _their_client), (_our_relay, _their_relay)
    return [
        _throughput("client, frames of 32 KiB, reads of 128 KiB", _cut(by_relay, READ), total, client, turns),
        _throughput("client, frames of 32 KiB, reads of 16 KiB", _cut(by_relay, SEGMENT), total, client, turns),
        _throughput("relay, frames of 128 KiB, reads of 128 KiB", _cut(by_client, READ), total, relay, turns),
        _throughput("relay, frames of 128 KiB, reads of 16 KiB", _cut(by_client, SEGMENT), total, relay, turns),
        _throughput("relay, one frame of 32 MiB, reads of 128 KiB", _cut(whole, READ), total, relay, turns),
        _sent("client sends 128 KiB", os.urandom(128 * KIB), 100, "MiB/s", turns),
        _each("client reads 200 bytes", encode_frame(BINARY, os.urandom(SMALL)), client, turns),
        _each("relay reads 200 bytes", encode_masked(BINARY, os.urandom(SMALL), os.urandom(4)), relay, turns),
        _sent("client sends 200 bytes", os.urandom(SMALL), 2000, "us", turns),
        Row("frames", "relay's memory for one frame of 32 MiB", "MiB", _peaks(_cut(whole, READ), relay)),
    ]


# Who reads:


def _machine(mask: Callable[[], bytes] | None) -> WebSocketMachine:
    return WebSocketMachine(now=0.0, ping_interval=20.0, ping_timeout=20.0, close_timeout=20.0, new_mask=mask)


def _our(machine: WebSocketMachine) -> Consume:
    def consume(piece: bytes) -> int:
        chunks, _ = machine.receive_data(piece, 0.0)
        machine.data_to_send()
        return sum([len(chunk.payload) for chunk in chunks])

    return consume


def _their(protocol: ClientProtocol | ServerProtocol) -> Consume:
    def consume(piece: bytes) -> int:
        protocol.receive_data(piece)
        protocol.data_to_send()
        return sum([len(event.data) for event in protocol.events_received() if isinstance(event, Frame)])

    return consume


def _our_client() -> Consume:
    return _our(_machine(lambda: os.urandom(4)))


def _our_relay() -> Consume:
    return _our(_machine(None))


def _their_client() -> Consume:
    return _their(_library())


def _their_relay() -> Consume:
    return _their(ServerProtocol(state=OPEN, max_size=None))


def _library() -> ClientProtocol:
    return ClientProtocol(parse_uri("ws://relay/"), state=OPEN, max_size=None)


# How it is measured:


def _cut(data: bytes, size: int) -> list[bytes]:
    """Return the reads of a socket."""
    return [data[start : start + size] for start in range(0, len(data), size)]


def _in_turns(runs: dict[str, Callable[[], float]], turns: int) -> dict[str, float]:
    """Return the median of each, after one turn that does not count."""
    found: dict[str, list[float]] = {name: [] for name in runs}
    for turn in range(turns + 1):
        for name in list(runs) if turn % 2 else reversed(runs):
            gc.collect()
            found[name].append(runs[name]())
    return {name: statistics.median(each[1:]) for name, each in found.items()}


def _seconds(consume: Consume, pieces: Sequence[bytes], payload: int) -> float:
    started = time.perf_counter()
    read = sum([consume(piece) for piece in pieces])
    seconds = time.perf_counter() - started
    if read != payload:
        raise AssertionError(f"{read} bytes of payload instead of {payload}")
    return seconds


def _throughput(
    what: str, pieces: Sequence[bytes], payload: int, makers: tuple[Callable[[], Consume], ...], turns: int
) -> Row:
    ours, theirs = makers
    runs = {
        OURS: lambda: payload / MIB / _seconds(ours(), pieces, payload),
        LIBRARY: lambda: payload / MIB / _seconds(theirs(), pieces, payload),
    }
    return Row("frames", what, "MiB/s", dict(_in_turns(runs, turns)))


def _each(what: str, frame: bytes, makers: tuple[Callable[[], Consume], ...], turns: int) -> Row:
    count = 2000
    ours, theirs = makers
    runs = {
        OURS: lambda: 1e6 / count * _seconds(ours(), [frame] * count, count * SMALL),
        LIBRARY: lambda: 1e6 / count * _seconds(theirs(), [frame] * count, count * SMALL),
    }
    return Row("frames", what, "us", dict(_in_turns(runs, turns)))


def _sent(what: str, payload: bytes, count: int, unit: str, turns: int) -> Row:
    """Measure how a client encodes messages."""

    def ours() -> float:
        machine = _machine(lambda: os.urandom(4))
        started = time.perf_counter()
        for _ in range(count):
            machine.send_message(BINARY, payload)
        return time.perf_counter() - started

    def theirs() -> float:
        protocol = _library()
        started = time.perf_counter()
        for _ in range(count):
            protocol.send_binary(payload)
            b"".join(protocol.data_to_send())
        return time.perf_counter() - started

    seconds = _in_turns({OURS: ours, LIBRARY: theirs}, turns)
    if unit == "us":
        return Row("frames", what, unit, {name: 1e6 / count * each for name, each in seconds.items()})
    return Row("frames", what, unit, {name: count * len(payload) / MIB / each for name, each in seconds.items()})


def _peaks(pieces: Sequence[bytes], makers: tuple[Callable[[], Consume], ...]) -> dict[str, float | str]:
    return {name: _peak(make(), pieces) / MIB for name, make in zip((OURS, LIBRARY), makers, strict=True)}


def _peak(consume: Consume, pieces: Sequence[bytes]) -> int:
    tracemalloc.start()
    try:
        for piece in pieces:
            consume(piece)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
