"""A TCP proxy that reproducibly simulates a bad network: latency, jitter, limited bandwidth, black holes and cuts.

    async with ChaosProxy("localhost", 8443, seed=7) as proxy:
        proxy.up.latency = 0.03          # seconds, towards the server
        proxy.down.blackhole = True      # towards the client: bytes are lost, sockets stay open
        proxy.cut()                      # closes every connection now

`python -m tests.support.network.chaos --to localhost:8443 --listen 9443 --cut-every 5` starts one in front of a relay.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import socket
import struct
import sys
from collections.abc import Callable
from dataclasses import dataclass

from relay_core.net.tasks import TaskSet, first_completed
from relay_core.program.console import run_program
from relay_core.program.run import run_until_stopped

READ_SIZE = 64 * 1024
LOCAL_HOST = "127.0.0.1"
QUEUED_CHUNKS = 256
"""Maximum number of chunks in transit in one direction: up to 16 MiB, enough for full speed at high latency."""


@dataclass
class Lane:
    """Network conditions in one direction, for every connection; they may be changed at any time."""

    latency: float = 0.0
    """Seconds, one way."""
    jitter: float = 0.0
    """Upper limit of the random additional delay in seconds; the order of bytes is kept."""
    bandwidth: float | None = None
    """Bytes per second, or None for no limit."""
    blackhole: bool = False
    """Whether bytes are accepted and then discarded."""
    stalled: bool = False
    """Whether no bytes are accepted, in which case the sender's buffers fill up."""
    cut_after: int | None = None
    """Number of bytes after which each new connection is closed on both sides; these bytes are still delivered."""


class ChaosProxy:
    """Forwards connections to `host:port` as a bad network does.

    Args:
        host: Host name of the server.
        port: Port of the server.
        listen: Port to listen on; 0 for a free one.
        seed: Seed of all random values, such as the jitter.
    """

    def __init__(self, host: str, port: int, *, listen: int = 0, seed: int = 0) -> None:
        self.on_connection: Callable[[], None] = lambda: None
        """Called before each connection is forwarded."""
        self.live: set[Connection] = set()
        """The open connections."""
        self.port = listen
        """The port that the proxy listens on."""
        self._target = (host, port)
        self._server: asyncio.Server | None = None
        self._tasks = TaskSet()
        self.up = Lane()
        """From the client to the server."""
        self.down = Lane()
        self.accepting = True
        """Whether new connections are forwarded; if not, they are closed immediately."""
        self.connections = 0
        """Connections accepted so far."""
        self.random = random.Random(seed)

    async def __aenter__(self) -> ChaosProxy:
        self._server = await asyncio.start_server(self._accept, LOCAL_HOST, self.port, limit=READ_SIZE)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_exc_info: object) -> None:
        if self._server is not None:
            self._server.close()
        self.cut()
        await self._tasks.cancel_all()

    def cut(self, *, reset: bool = False) -> int:
        """Close every connection in both directions at once, and return the number of connections.

        Args:
            reset: Whether to close them with RST instead of FIN.
        """
        for writer in (writer for connection in self.live for writer in connection.writers if reset):
            with contextlib.suppress(OSError):  # already closed
                linger = struct.pack("ii", 1, 0)
                writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        ended = list(self.live)
        for connection in ended:
            connection.end()
        return len(ended)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward a connection that was accepted, or close it."""
        self.connections += 1
        if self.accepting:
            self.on_connection()
            self._tasks.spawn(self._forward(reader, writer), name="chaos connection")
        else:
            writer.transport.abort()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = Connection(writer)
        self.live.add(connection)
        try:
            server_reader, server_writer = await asyncio.open_connection(*self._target, limit=READ_SIZE)
            connection.writers.append(server_writer)
            if connection.ended:
                return
            async with TaskSet() as tasks:
                up = tasks.spawn(self._pass_on(reader, server_writer, self.up), name="up")
                down = tasks.spawn(self._pass_on(server_reader, writer, self.down), name="down")
                if not await first_completed(up, down):  # one side has sent EOF; the other may still send
                    await asyncio.wait({up, down})
        except OSError:  # the server did not accept the connection
            writer.transport.abort()
        finally:
            self.live.discard(connection)
            for end in connection.writers:
                end.close()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, lane: Lane) -> bool:
        """Forward one direction until EOF; return True if `cut_after` or an error closed the connection."""
        in_transit: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(QUEUED_CHUNKS)
        budget = lane.cut_after
        async with TaskSet() as tasks:
            delivering = tasks.spawn(_deliver(in_transit, lane, writer), name="deliver")
            due = 0.0
            while not delivering.done():
                if lane.stalled:
                    await asyncio.sleep(0.01)
                    continue
                data = await _read(reader)
                cut = budget is not None and len(data) >= budget
                if budget is not None:
                    data = data[:budget]
                    budget -= len(data)
                # A chunk never overtakes the previous one, whatever the jitter.
                due = max(due, _now() + lane.latency + lane.jitter * self.random.random())
                await in_transit.put((due, data))
                if cut:
                    await in_transit.put((due, b""))
                if cut or not data:
                    await delivering
                    return cut
            return True


class Connection:
    """One accepted connection and, once established, the connection to the server."""

    def __init__(self, client: asyncio.StreamWriter) -> None:
        self.writers = [client]
        self.ended = False

    def end(self) -> None:
        """Close both connections at once."""
        self.ended = True
        for writer in self.writers:
            writer.transport.abort()


async def _deliver(in_transit: asyncio.Queue[tuple[float, bytes]], lane: Lane, writer: asyncio.StreamWriter) -> None:
    """Write chunks when they are due, until b"", which stands for EOF."""
    with contextlib.suppress(OSError):
        while True:
            due, data = await in_transit.get()
            await asyncio.sleep(max(0.0, due - _now()))
            if not data:
                if not writer.is_closing():
                    writer.write_eof()
                return
            if lane.blackhole:
                continue
            if not writer.is_closing():  # otherwise `drain` raises
                writer.write(data)
            await writer.drain()
            if lane.bandwidth:
                await asyncio.sleep(len(data) / lane.bandwidth)


async def _read(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read(READ_SIZE)
    except OSError:
        return b""


def _now() -> float:
    return asyncio.get_running_loop().time()


# Seeded schedules for the bad network:

HANDSHAKE = 6_000
"""Bytes within which TLS, the upgrade, the inner TLS and the first frames lie, in either direction."""
BULK = 400_000


class CutSchedule:
    """Cuts every later connection after a random number of bytes: half of them while it is being set up.

    Args:
        chaos: The network.
        seed: Two schedules with the same seed cut at the same bytes.
    """

    def __init__(self, chaos: ChaosProxy, *, seed: int) -> None:
        self._chaos = chaos
        self._random = random.Random(seed)
        chaos.on_connection = self._next

    def stop(self) -> None:
        """Leave later connections alone, and end those that would still be cut."""
        self._chaos.on_connection = lambda: None
        self._chaos.up.cut_after = self._chaos.down.cut_after = None
        self._chaos.cut()

    def _next(self) -> None:
        size = self._random.randrange(HANDSHAKE if self._random.random() < 0.5 else BULK)
        upwards = self._random.random() < 0.5
        self._chaos.up.cut_after = size if upwards else None
        self._chaos.down.cut_after = None if upwards else size


def main(argv: list[str]) -> int:
    """Run a proxy until stopped."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.support.network.chaos", description="A TCP proxy that behaves like a bad network."
    )
    parser.add_argument("--to", required=True, metavar="HOST:PORT", help="server to connect to")
    parser.add_argument("--listen", type=int, default=0, metavar="PORT", help="port on 127.0.0.1 (default: a free one)")
    parser.add_argument("--latency", type=float, default=0.0, metavar="S", help="latency in seconds, each way")
    parser.add_argument("--jitter", type=float, default=0.0, metavar="S", help="maximum random delay in seconds")
    parser.add_argument("--bandwidth", type=float, metavar="BYTES", help="bytes per second, each way")
    parser.add_argument("--cut-every", type=float, metavar="S", help="seconds between cuts of all connections")
    parser.add_argument("--seed", type=int, default=0, help="seed for the random number generator")
    return run_until_stopped(_run(parser.parse_args(argv), lambda text: print(text, file=sys.stderr, flush=True)))


async def _run(arguments: argparse.Namespace, log: Callable[[str], None]) -> None:
    host, _, port = arguments.to.rpartition(":")
    async with ChaosProxy(host, int(port), listen=arguments.listen, seed=arguments.seed) as proxy:
        for lane in (proxy.up, proxy.down):
            lane.latency, lane.jitter, lane.bandwidth = arguments.latency, arguments.jitter, arguments.bandwidth
        log(f"chaos: listening on {LOCAL_HOST}:{proxy.port}, forwarding to {arguments.to}")
        while True:
            await asyncio.sleep(arguments.cut_every or 3600.0)
            if arguments.cut_every:
                log(f"chaos: cut {proxy.cut()} connections")


if __name__ == "__main__":
    sys.exit(run_program("chaos", main))
