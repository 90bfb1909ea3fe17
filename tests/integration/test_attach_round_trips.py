"""Facts about the messages between editor and node that follow each other until a job has stopped."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest

from relay_client.agents.tunnels import Tunnels
from relay_client.dap import DapClient, RequestFailed
from relay_client.ports.forwarder import Forwarder
from relay_core.hyco.address import Endpoint
from tests.support.editors.stepper import LINE, TRAIN
from tests.support.jobs.running import running_job
from tests.support.machine.deadline import DEADLINE
from tests.support.machine.ports import free_port
from tests.support.network.chaos import ChaosProxy
from tests.support.network.relay import HC, LocalRelay

ONE_WAY = 0.5
"""Seconds between client and relay: a round trip takes so much longer than anything else that waits can be counted."""
LIMIT = 3
"""Round trips."""
T = TypeVar("T")


class CountingEditor:
    """An editor that counts, in each of its waits, the round trips that it has waited for."""

    def __init__(self, client: DapClient, script: Path) -> None:
        self.client = client
        self.round_trips = 0
        self._breakpoints = {"source": {"path": str(script)}, "breakpoints": [{"line": LINE}]}

    async def wait(self, *awaited: Awaitable[T]) -> list[T]:
        """Wait for messages that were requested together."""
        loop = asyncio.get_running_loop()
        started = loop.time()
        results = await asyncio.gather(*awaited)
        self.round_trips += int((loop.time() - started) / (2 * ONE_WAY) + 0.1)  # the rest is the machine's time
        return results

    async def attach(self) -> None:
        """Wait for the capabilities, and until breakpoints can be set."""
        await self.wait(
            self.client.request("initialize", {"clientID": "vscode", "adapterID": "debugpy"}, within=DEADLINE)
        )
        self._attaching = asyncio.ensure_future(self.client.request("attach", {"justMyCode": False}, within=DEADLINE))
        await self.wait(self.client.wait_for_event("initialized", within=DEADLINE))

    async def as_vscode(self) -> None:
        """Set all breakpoints at once, and then let the job continue."""
        await self.attach()
        await self.wait(
            self.client.request("setBreakpoints", self._breakpoints, within=DEADLINE),
            self.client.request("setFunctionBreakpoints", {"breakpoints": []}, within=DEADLINE),
            self.client.request("setExceptionBreakpoints", {"filters": ["uncaught"]}, within=DEADLINE),
        )
        await self._until_stopped()

    async def one_by_one(self) -> None:
        """The same, with one request after the other."""
        await self.attach()
        await self.wait(self.client.request("setBreakpoints", self._breakpoints, within=DEADLINE))
        await self.wait(self.client.request("setFunctionBreakpoints", {"breakpoints": []}, within=DEADLINE))
        await self.wait(self.client.request("setExceptionBreakpoints", {"filters": ["uncaught"]}, within=DEADLINE))
        await self._until_stopped()

    async def _until_stopped(self) -> None:
        await self.wait(self.client.request("configurationDone", within=DEADLINE))
        await self.wait(self.client.wait_for_event("stopped", within=DEADLINE))
        await self._attaching


@contextlib.asynccontextmanager
async def far_job(
    relay: LocalRelay, script: Path, *, prefetch: bool = True, has_started: bool = True
) -> AsyncIterator[int]:
    """Run a job, usually one whose debugger has started, behind a slow network; yields its local port."""
    port = free_port()
    script.write_text(TRAIN)  # noqa: ASYNC240 - nothing else runs yet
    async with (
        running_job(relay, script, "--port", str(port)),
        ChaosProxy("127.0.0.1", relay.server.port) as chaos,
        Tunnels(Endpoint("localhost", chaos.port, HC), relay.sender, relay.tls, prefetch=prefetch) as tunnels,
        Forwarder(tunnels, [port]),
    ):
        if has_started:
            async with await DapClient.connect("127.0.0.1", port, within=DEADLINE) as first:
                await first.attach({}, within=DEADLINE)
                await first.request("disconnect", {"terminateDebuggee": False}, within=DEADLINE)
        else:
            await tunnels.search.wait_for(lambda: tunnels.reachable_targets() or None, lambda _why: None)
        chaos.up.latency = chaos.down.latency = ONE_WAY
        yield port


@pytest.mark.parametrize("attach", [CountingEditor.as_vscode, CountingEditor.one_by_one])
async def test_at_most_three(
    relay: LocalRelay, tmp_path: Path, attach: Callable[[CountingEditor], Awaitable[None]]
) -> None:
    """From `initialize` to `stopped` an editor waits for three round trips at most."""
    script = tmp_path / "working.py"
    async with far_job(relay, script) as port, await DapClient.connect("127.0.0.1", port, within=DEADLINE) as client:
        editor = CountingEditor(client, script)
        await attach(editor)
        assert editor.round_trips <= LIMIT


async def test_first_attach(relay: LocalRelay, tmp_path: Path) -> None:
    """The same holds for the first editor of a job, in which debugpy is started."""
    script = tmp_path / "working.py"
    async with (
        far_job(relay, script, has_started=False) as port,
        await DapClient.connect("127.0.0.1", port, within=DEADLINE) as client,
    ):
        editor = CountingEditor(client, script)
        await editor.as_vscode()
        assert editor.round_trips <= LIMIT


async def test_without_prefetch(relay: LocalRelay, tmp_path: Path) -> None:
    """`--no-prefetch` switches it off: debugpy answers every request."""
    script = tmp_path / "working.py"
    async with (
        far_job(relay, script, prefetch=False) as port,
        await DapClient.connect("127.0.0.1", port, within=DEADLINE) as client,
    ):
        editor = CountingEditor(client, script)
        await editor.one_by_one()
        assert editor.round_trips > LIMIT


async def test_job_that_somebody_else_debugs(relay: LocalRelay, tmp_path: Path) -> None:
    """The reason reaches the editor as the response to `attach`, which nothing has answered before."""
    script = tmp_path / "working.py"
    async with far_job(relay, script) as port, await DapClient.connect("127.0.0.1", port, within=DEADLINE) as client:
        await CountingEditor(client, script).as_vscode()
        async with await DapClient.connect("127.0.0.1", port, within=DEADLINE) as second:
            with pytest.raises(RequestFailed, match=r" is held by \S+@\S+ \(since \d\d:\d\d\)"):
                await second.attach({}, within=DEADLINE)
