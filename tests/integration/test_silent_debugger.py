"""Facts about a debugger that stops responding during a session through a relay."""

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest

from relay_agent.agent import layers
from relay_agent.agent.layers import PATIENCE
from relay_agent.agent.port_targets import PortTarget
from relay_client.agents.tunnels import Tunnels
from relay_client.dap import DapClient
from relay_client.ports.forwarder import Forwarder
from relay_core.compat import timeout
from relay_core.dap.framing import Message
from relay_core.errors import RelayDebugError
from tests.support.debuggers.debuggee import debuggee
from tests.support.editors.listening import listening_editor
from tests.support.jobs.processes import gone, suspend
from tests.support.jobs.running import running_job
from tests.support.machine.deadline import DEADLINE
from tests.support.machine.ports import free_port
from tests.support.machine.programs import Program
from tests.support.network.relay import LocalRelay
from tests.support.network.tunnel import running_agent

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


@contextlib.asynccontextmanager
async def job_of(relay: LocalRelay, directory: Path) -> AsyncIterator[tuple[int, Path, Program, Tunnels]]:
    """Run the program under the agent; yields its port, its file, the job and a client's tunnels."""
    port, script = free_port(), directory / "program.py"
    script.write_text(PROGRAM)
    async with (
        running_job(relay, script, "--port", str(port)) as job,
        Tunnels(relay.endpoint, relay.sender, relay.tls) as tunnels,
    ):
        yield port, script, job, tunnels


async def test_session_of_a_silent_debugger_ends(relay: LocalRelay, tmp_path: Path) -> None:
    """The editor gets the reason, the job runs on and logs it, and the next editor stops at the same breakpoint."""
    async with job_of(relay, tmp_path) as (port, script, job, tunnels), Forwarder(tunnels, [port]):
        client, thread = await attach(port, script)
        before = await value(client, thread, "number")
        await value(client, thread, "hang()")
        with pytest.raises(RelayDebugError):
            await client.request("threads", within=PATIENCE + DEADLINE)
        reason = await client.wait_for_event("output", matching=is_reason, within=DEADLINE)
        assert "debugpy has not answered 'threads' for 30 s" in reason["body"]["output"]
        await client.close()
        await job.line("debugpy no longer responds; its session was ended")
        client, thread = await attach(port, script)
        assert int(await value(client, thread, "number")) > int(before)
        await client.close()


async def test_session_of_a_listening_editor_ends_too(relay: LocalRelay, tmp_path: Path) -> None:
    """A job whose debugger hangs while it is connected to an editor that listens runs on, and can be attached to."""
    async with job_of(relay, tmp_path) as (port, script, job, tunnels):
        async with (
            listening_editor(port, script, BREAKPOINT) as editor,
            Forwarder(tunnels, [port], may_reverse=True),
        ):
            await editor.until_stopped()
            before = await editor.value("number")
            await editor.value("hang()")
            with contextlib.suppress(RelayDebugError):
                await editor.client.request("threads", within=PATIENCE + DEADLINE)
            await job.line("debugpy no longer responds; its session was ended")
        async with Forwarder(tunnels, [port]):
            client, thread = await attach(port, script)
            assert int(await value(client, thread, "number")) > int(before)
            await client.close()


@pytest.mark.parametrize("stopped", ["adapter", "job"])
async def test_session_of_a_foreign_debugger_ends(
    relay: LocalRelay, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stopped: str
) -> None:
    """An editor gets the reason if a debugger that somebody else started stops, and can attach when it runs again."""
    port, logs = free_port(), tmp_path / "logs"
    monkeypatch.setenv("DEBUGPY_LOG_DIR", str(logs))
    async with (
        debuggee(tmp_path, PROGRAM) as (job, debugger, script),
        running_agent(relay, {port: PortTarget(port, debugger, dap_only=True)}, tunnel_key=None),
        Tunnels(relay.endpoint, relay.sender, relay.tls) as tunnels,
        Forwarder(tunnels, [port]),
    ):
        client, thread = await attach(port, script)
        before = await value(client, thread, "number")
        silent = adapter_on(debugger) if stopped == "adapter" else psutil.Process(job.pid)
        await suspend(silent.pid)
        try:
            with monkeypatch.context() as patch:
                patch.setattr(layers, "PATIENCE", 3.0)
                with pytest.raises(RelayDebugError):
                    await client.request("threads", within=DEADLINE)
                reason = await client.wait_for_event("output", matching=is_reason, within=DEADLINE)
            expected = "debugpy has not answered 'threads' for 3 s; its session was ended, and you can attach again"
            assert expected in reason["body"]["output"]
            await client.close()
        finally:
            silent.resume()
        await until_finalized(logs)
        client, thread = await attach(port, script)
        assert int(await value(client, thread, "number")) > int(before)
        await client.close()


PARENT = f"""\
import subprocess
import sys
import time

subprocess.Popen([sys.executable, "-c", {PROGRAM.replace("number = 0", "number = 0; breakpoint()")!r}])
while True:
    time.sleep(0.01)
"""


async def test_session_of_a_silent_child_ends(
    relay: LocalRelay, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The editor gets the reason, and how to end the child, which stays stopped; its parent's session continues."""
    port = free_port()
    async with (
        debuggee(tmp_path, PARENT) as (_, debugger, _),
        running_agent(relay, {port: PortTarget(port, debugger, dap_only=True)}, tunnel_key=None),
        Tunnels(relay.endpoint, relay.sender, relay.tls) as tunnels,
        Forwarder(tunnels, [port]),
        await DapClient.connect("127.0.0.1", port, within=DEADLINE) as parent,
    ):
        await parent.attach({}, within=DEADLINE)
        child = (await parent.wait_for_event("debugpyAttach", within=DEADLINE))["body"]["subProcessId"]
        async with await DapClient.connect("127.0.0.1", port, within=DEADLINE) as editor:
            await editor.attach({}, within=DEADLINE, subProcessId=child)
            stopped = await editor.wait_for_event("stopped", within=DEADLINE)
            await value(editor, {"threadId": stopped["body"]["threadId"]}, "hang()")
            monkeypatch.setattr(layers, "PATIENCE", 0.5)
            with pytest.raises(RelayDebugError):
                await editor.request("threads", within=DEADLINE)
            reason = await editor.wait_for_event("output", matching=is_reason, within=DEADLINE)
            expected = f"if the process is stopped, it stays stopped; to kill it, run 'kill {child}' on its node"
            assert expected in reason["body"]["output"]
        monkeypatch.undo()
        await parent.request("threads", within=DEADLINE)
        os.kill(child, signal.SIGTERM)
        assert await gone(child)


def adapter_on(port: int) -> psutil.Process:
    """Return the process that listens on a port."""
    (pid,) = {
        socket.pid
        for socket in psutil.net_connections("tcp")
        if socket.laddr and socket.laddr[1] == port and socket.status == psutil.CONN_LISTEN
    }
    return psutil.Process(pid)


def is_reason(body: Message) -> bool:
    return "answered" in body["output"]


async def attach(port: int, script: Path) -> tuple[DapClient, dict[str, int]]:
    """Attach, and wait until the job stands at the breakpoint."""
    async with contextlib.AsyncExitStack() as on_failure:
        client = await on_failure.enter_async_context(await DapClient.connect("127.0.0.1", port, within=DEADLINE))
        await client.attach({str(script): [{"line": BREAKPOINT}]}, within=DEADLINE)
        stopped = await client.wait_for_event("stopped", within=DEADLINE)
        on_failure.pop_all()  # the caller closes it
    return client, {"threadId": stopped["body"]["threadId"]}


async def until_finalized(logs: Path) -> None:
    """Wait until debugpy's adapter has ended its first session.

    A connection before that can end the thread in which the adapter accepts others (microsoft/debugpy#1308).
    """

    def is_finalized() -> bool:
        return any("Session[1] finalized" in log.read_text() for log in logs.glob("debugpy.adapter-*.log"))

    async with timeout(DEADLINE):
        while not await asyncio.to_thread(is_finalized):
            await asyncio.sleep(0.05)


async def value(client: DapClient, thread: dict[str, int], expression: str) -> str:
    """Return the value of an expression where the job stands."""
    frame = (await client.request("stackTrace", {**thread, "levels": 1}, within=DEADLINE))["stackFrames"][0]["id"]
    return (await client.request("evaluate", {"expression": expression, "frameId": frame}, within=DEADLINE))["result"]
