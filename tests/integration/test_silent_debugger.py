"""Facts about a debugger that stops responding during a session through a relay."""

import contextlib
from pathlib import Path

import pytest

from relay_agent.agent.debugger_watch import PATIENCE
from relay_client.agents.tunnels import Tunnels
from relay_client.dap.client import DapClient
from relay_client.ports.forwarder import Forwarder
from relay_core.dap.framing import Message
from relay_core.errors import RelayDebugError
from tests.support.listening import listening_editor
from tests.support.ports import free_port
from tests.support.relay import LocalRelay
from tests.support.run_job import running_job

PROGRAM = """\
import sys
import time

def hang():
    sys.modules["pydevd"].get_global_debugger()._main_lock.acquire()

number = 0
while True:
    number += 1
    time.sleep(0.01)
"""
BREAKPOINT = 9
"""The line of `number += 1`."""


@pytest.mark.timeout(240)
async def test_session_of_a_silent_debugger_ends(relay: LocalRelay, tmp_path: Path) -> None:
    """The editor gets the reason, the job runs on and logs it, and the next editor stops at the same breakpoint."""
    port, script = free_port(), tmp_path / "program.py"
    script.write_text(PROGRAM)
    async with (
        running_job(relay, script, "--port", str(port)) as job,
        Tunnels(relay.endpoint, relay.sender, relay.tls) as tunnels,
        Forwarder(tunnels, [port]),
    ):
        client, thread = await attach(port, script)
        before = await value(client, thread, "number")
        await value(client, thread, "hang()")
        with pytest.raises(RelayDebugError):
            await client.request("threads", within=PATIENCE + 60)
        reason = await client.wait_for_event("output", matching=is_reason, within=60)
        assert "debugpy has not answered 'threads' for 30 s" in reason["body"]["output"]
        await client.close()
        await job.line("debugpy no longer responds; its session was ended")
        client, thread = await attach(port, script)
        assert int(await value(client, thread, "number")) > int(before)
        await client.close()


@pytest.mark.timeout(240)
async def test_session_of_a_listening_editor_ends_too(relay: LocalRelay, tmp_path: Path) -> None:
    """A job whose debugger hangs while it is connected to an editor that listens runs on, and can be attached to."""
    port, script = free_port(), tmp_path / "program.py"
    script.write_text(PROGRAM)
    async with (
        running_job(relay, script, "--port", str(port)) as job,
        Tunnels(relay.endpoint, relay.sender, relay.tls) as tunnels,
    ):
        async with (
            listening_editor(port, script, BREAKPOINT) as editor,
            Forwarder(tunnels, [port], may_reverse=True),
        ):
            await editor.until_stopped()
            before = await editor.value("number")
            await editor.value("hang()")
            with contextlib.suppress(RelayDebugError):
                await editor.client.request("threads", within=PATIENCE + 60)
            await job.line("debugpy no longer responds; its session was ended")
        async with Forwarder(tunnels, [port]):
            client, thread = await attach(port, script)
            assert int(await value(client, thread, "number")) > int(before)
            await client.close()


def is_reason(body: Message) -> bool:
    return "answered" in body["output"]


async def attach(port: int, script: Path) -> tuple[DapClient, dict[str, int]]:
    """Attach, and wait until the job stands at the breakpoint."""
    client = await DapClient.connect("127.0.0.1", port)
    await client.attach({str(script): [{"line": BREAKPOINT}]}, within=60)
    return client, {"threadId": (await client.wait_for_event("stopped", within=60))["body"]["threadId"]}


async def value(client: DapClient, thread: dict[str, int], expression: str) -> str:
    """Return the value of an expression where the job stands."""
    frame = (await client.request("stackTrace", {**thread, "levels": 1}, within=60))["stackFrames"][0]["id"]
    return (await client.request("evaluate", {"expression": expression, "frameId": frame}, within=60))["result"]
