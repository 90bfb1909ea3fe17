"""Load on one local port, from a process of its own: `python -m tests.bench.load MODE PORT ...` prints a line of JSON.

ping    small messages to and back on one connection, or on several: the latency of each, in seconds
open    connect, send one byte, read it back, hang up; again: the time of each, in seconds
bulk    up- or download, over one connection or several: the seconds it took
check   random bytes to an echo server and back, compared: how many came back as they were sent
hold    as many connections as asked for, each proved to work; held until stdin ends
"""

from __future__ import annotations

import argparse
import json
import random
import socket
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from tests.bench.target import BLOCK, LENGTH

PATIENCE = 60.0
"""Seconds for any one answer."""


def connect(port: int, wish: bytes) -> socket.socket:
    """Connect to a target through whatever listens on `port`."""
    connection = socket.create_connection(("127.0.0.1", port), PATIENCE)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.sendall(wish)
    return connection


def exchange(connection: socket.socket, data: bytes) -> bytes:
    """Send bytes and return as many that come back."""
    connection.sendall(data)
    received = bytearray()
    while len(received) < len(data):
        piece = connection.recv(len(data) - len(received))
        if not piece:
            raise ConnectionError("the connection ended early")
        received += piece
    return bytes(received)


def ping(arguments: argparse.Namespace) -> dict[str, object]:
    """Send the next message `--interval` after the last answer; latencies and when each message was sent."""
    with ThreadPoolExecutor(arguments.connections) as pool:
        found = [pair for pairs in pool.map(_ping, [arguments] * arguments.connections) for pair in pairs]
    return {"latencies": [latency for latency, _ in found], "sent_at": [sent for _, sent in found]}


def _ping(arguments: argparse.Namespace) -> list[tuple[float, float]]:
    data = bytes(arguments.size)
    found = []
    with connect(arguments.port, b"E") as connection:
        exchange(connection, data)
        time.sleep(random.uniform(0, arguments.interval))  # several connections do not send at the same time
        until = time.monotonic() + arguments.seconds
        while time.monotonic() < until:
            time.sleep(arguments.interval)
            sent = time.monotonic()
            exchange(connection, data)
            found.append((time.monotonic() - sent, sent))
    return found


def open_again_and_again(arguments: argparse.Namespace) -> dict[str, object]:
    """From before the connect to the first echoed byte."""
    times = []
    for _ in range(arguments.count):
        started = time.monotonic()
        with connect(arguments.port, b"E.") as connection:
            connection.recv(1)
            times.append(time.monotonic() - started)
        time.sleep(arguments.interval)
    return {"times": times}


def bulk(arguments: argparse.Namespace) -> dict[str, object]:
    """From the first byte to the last one's arrival, over all connections."""
    size = arguments.mib * BLOCK // arguments.connections
    move = upload if arguments.direction == "up" else download
    threads = [threading.Thread(target=move, args=(arguments.port, size)) for _ in range(arguments.connections)]
    started = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {"seconds": time.monotonic() - started}


def upload(port: int, left: int) -> None:
    """Send, and wait until all has arrived."""
    block = memoryview(random.randbytes(BLOCK))
    with connect(port, b"U" + LENGTH.pack(left)) as connection:
        while left:
            part = block[: min(left, BLOCK)]
            connection.sendall(part)
            left -= len(part)
        connection.recv(1)


def download(port: int, left: int) -> None:
    """Read until all has arrived."""
    block = bytearray(BLOCK)
    with connect(port, b"D" + LENGTH.pack(left)) as connection:
        while left and (received := connection.recv_into(block)):
            left -= received


def check(arguments: argparse.Namespace) -> dict[str, object]:
    """Blocks of many sizes; one that differs, is short or does not come counts as lost."""
    chance = random.Random(arguments.seed)
    until = time.monotonic() + arguments.seconds
    right = wrong = 0
    with connect(arguments.port, b"E") as connection:
        while time.monotonic() < until:
            data = chance.randbytes(chance.randint(1, 200_000))
            if echoed(connection, data) == data:
                right += len(data)
            else:
                wrong += len(data)
        connection.shutdown(socket.SHUT_WR)
        wrong += len(connection.recv(BLOCK))  # doubled bytes would come last
    return {"bytes": right, "wrong": wrong}


def echoed(connection: socket.socket, data: bytes) -> bytes:
    """Exchange with a writer of its own, because a large block fills every buffer on the way."""
    writer = threading.Thread(target=connection.sendall, args=(data,))
    writer.start()
    received = bytearray()
    while len(received) < len(data) and (piece := connection.recv(len(data) - len(received))):
        received += piece
    writer.join()
    return bytes(received)


def hold(arguments: argparse.Namespace) -> dict[str, object]:
    """Open connections until there are enough or one fails; the caller then looks at the processes in between."""
    started = time.monotonic()
    held = list(working(arguments.port, arguments.ports or 1, arguments.count))
    print(json.dumps({"held": len(held), "seconds": time.monotonic() - started}), flush=True)
    sys.stdin.read()
    return {"closed": len(held)}


def working(port: int, ports: int, count: int) -> Iterator[socket.socket]:
    """Yield connections that have echoed a byte, to `ports` ports in turn."""
    for number in range(count):
        connection = connect(port + number % ports, b"E")
        if exchange(connection, b".") != b".":
            return
        yield connection


def main() -> None:
    """Run one mode."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.load")
    modes = parser.add_subparsers(required=True)
    for mode in (ping, open_again_and_again, bulk, check, hold):
        name = mode.__name__.partition("_")[0]
        command = modes.add_parser(name)
        command.set_defaults(mode=mode)
        command.add_argument("port", type=int)
        command.add_argument("--size", type=int, default=200)
        command.add_argument("--seconds", type=float, default=5.0)
        command.add_argument("--interval", type=float, default=0.002)
        command.add_argument("--count", type=int, default=10)
        command.add_argument("--ports", type=int)
        command.add_argument("--mib", type=int, default=64)
        command.add_argument("--connections", type=int, default=1)
        command.add_argument("--direction", choices=["up", "down"], default="up")
        command.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    print(json.dumps(arguments.mode(arguments)), flush=True)


if __name__ == "__main__":
    main()
