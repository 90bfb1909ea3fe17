"""Facts about the call stack that VS Code shows at stops whose responses were prefetched."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from relay_client.dap import DapClient
from relay_core.tunnel.limits import Settings
from tests.support.debuggers.debuggee import LINE, debuggee_in_thread
from tests.support.editors.vscode_call_stack import CallStack
from tests.support.machine.deadline import DEADLINE
from tests.support.network.chaos import ChaosProxy
from tests.support.network.relay import LocalRelay
from tests.support.network.tunnel import tunnelled_to

ONE_WAY = 0.15
"""Seconds; more than VS Code waits before it draws the call stack."""
STEPS = 3
DEPTH = 2
"""Frames: the function and its module."""


@contextlib.asynccontextmanager
async def far_away(port: int) -> AsyncIterator[int]:
    """Carry a port to a debugger without a relay, from as far away."""
    async with ChaosProxy("127.0.0.1", port) as proxy:
        proxy.up.latency = proxy.down.latency = ONE_WAY
        yield proxy.port


@contextlib.asynccontextmanager
async def through_relay(relay: LocalRelay, port: int, *, prefetch: bool) -> AsyncIterator[int]:
    """Carry a port to a debugger through a relay."""
    async with tunnelled_to(relay, port, dap_only=True, prefetch=prefetch, settings=Settings()) as path:
        path.chaos.up.latency = path.chaos.down.latency = ONE_WAY
        yield path.port


async def shown(port: int, script: Path) -> list[tuple[bool, object, list[tuple[str, int]]]]:
    """Return, for each step: whether "Load More Stack Frames" is shown, `totalFrames`, and the frames."""
    async with await DapClient.connect("127.0.0.1", port, within=DEADLINE) as client:
        capabilities = await client.request(
            "initialize", {"clientID": "vscode", "adapterID": "debugpy"}, within=DEADLINE
        )
        attaching = asyncio.ensure_future(client.request("attach", {"justMyCode": True}, within=DEADLINE))
        await client.wait_for_event("initialized", within=DEADLINE)
        await client.set_breakpoints(str(script), [{"line": LINE}], within=DEADLINE)
        await client.request("configurationDone", within=DEADLINE)
        await attaching
        call_stack, found = CallStack(client, capabilities), []
        for _ in range(STEPS):
            thread = (await client.wait_for_event("stopped", within=DEADLINE))["body"]["threadId"]
            await call_stack.show(thread)
            frames = [(frame["name"], frame["line"]) for frame in call_stack.frames]
            found.append((call_stack.offers_more, call_stack.total, frames))
            await client.request("next", {"threadId": thread}, within=DEADLINE)
        return found


@pytest.mark.parametrize("prefetch", [True, False])
async def test_stack_is_that_of_a_direct_session(relay: LocalRelay, tmp_path: Path, prefetch: bool) -> None:
    """No "Load More Stack Frames" below a complete stack, with and without prefetch; the same frames and total."""
    async with debuggee_in_thread(tmp_path) as (_, port, script), far_away(port) as direct:
        expected = await shown(direct, script)
    assert [(False, DEPTH)] * STEPS == [(offers_more, total) for offers_more, total, _ in expected]
    async with (
        debuggee_in_thread(tmp_path) as (_, port, script),
        through_relay(relay, port, prefetch=prefetch) as tunnel,
    ):
        assert expected == await shown(tunnel, script)
