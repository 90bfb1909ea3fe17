"""Facts about what an editor is shown: through a real relay, with a real debugpy or without any job."""

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from relay_agent.agent.port_targets import PortTarget
from relay_client.agents.roster import Destination
from relay_client.agents.tunnels import Tunnels
from relay_client.dap import DapClient, RequestFailed
from relay_client.ports.forwarder import Forwarder
from relay_client.ports.local_port import LocalPort
from relay_core.auth.sas_credentials import SasKeyCredential
from relay_core.dap.framing import encode
from relay_core.tunnel import session_table
from tests.support.debuggers.debuggee import LINE, debuggee, stopped_at_breakpoint
from tests.support.jobs.running import access, running_client
from tests.support.machine import secrets
from tests.support.machine.deadline import DEADLINE
from tests.support.machine.ports import free_port
from tests.support.machine.programs import REPOSITORY, Program, environment
from tests.support.machine.streams import local_server
from tests.support.network.fleet import until_announced
from tests.support.network.relay import LocalRelay
from tests.support.network.tunnel import QUICK, running_agent, tunnelled_to

KEY = os.urandom(32)
VSCODE = {"clientID": "vscode", "adapterID": "debugpy"}


@contextlib.asynccontextmanager
async def forwarding(relay: LocalRelay, port: int, **options: Any) -> AsyncIterator[Forwarder]:
    """Run a client that forwards `port`."""
    credential = options.pop("credential", relay.sender)
    async with (
        Tunnels(relay.endpoint, credential, relay.tls, tunnel_key=KEY, settings=QUICK) as tunnels,
        Forwarder(tunnels, [port], **options) as forwarder,
    ):
        yield forwarder


@contextlib.asynccontextmanager
async def serving(relay: LocalRelay, port: int, target_port: int) -> AsyncIterator[None]:
    """Run an agent that serves a debugger as `port`."""
    async with running_agent(relay, {port: PortTarget(port, target_port, dap_only=True)}, tunnel_key=KEY):
        yield


async def output(editor: DapClient, part: str, within: float = DEADLINE) -> str:
    """Return the next output of relay-client that contains `part`, without the program's name."""

    def matches(body: dict[str, Any]) -> bool:
        return body.get("output", "").startswith("relay-client: ") and part in body["output"]

    event = await editor.wait_for_event("output", matching=matches, within=within)
    return event["body"]["output"].removeprefix("relay-client: ").rstrip()


async def test_an_editor_that_comes_before_the_job_is_shown_what_it_waits_for(
    relay: LocalRelay, tmp_path: Path
) -> None:
    """Lines appear before `initialize` is answered; when the job comes, the session begins as usual."""
    port = free_port()
    async with (
        debuggee(tmp_path) as (_, target_port, _),
        forwarding(relay, port),
        await DapClient.connect("127.0.0.1", port, within=DEADLINE) as editor,
    ):
        answer = asyncio.ensure_future(editor.request("initialize", VSCODE, within=DEADLINE))
        line = await output(editor, "waiting for")
        assert line.startswith(f"waiting for port {port} on 'myhc' (")
        assert line.endswith(" s so far): no agent is listening yet")
        async with serving(relay, port, target_port):
            assert "supportsConfigurationDoneRequest" in await answer


async def test_a_port_that_differs_from_that_of_the_job(relay: LocalRelay, tmp_path: Path) -> None:
    """The terminal at the start, and the editor that waits, show the ports that the job has, with a hint."""
    port, others = free_port(), "registered: port 5999. hint: check --ports against the job's --debug-port"
    async with (
        running_agent(relay, {5999: PortTarget(5999, free_port(), dap_only=True)}, tunnel_key=None),
        running_client(relay, tmp_path, "--ports", str(port)) as client,
        await DapClient.connect("127.0.0.1", port, within=DEADLINE) as editor,
    ):
        await client.line(f"warning: no agent serves port {port}; {others}")
        waiting = asyncio.ensure_future(editor.request("initialize", VSCODE, within=DEADLINE))
        assert (await output(editor, "waiting for")).endswith(f": no agent on 'myhc' serves port {port}; {others}")
        waiting.cancel()


async def test_a_child_that_is_not_followed_is_explained(relay: LocalRelay) -> None:
    """What a debugged process is refused reaches the log and the editor, although no other message follows."""
    child = {"name": "Subprocess 7", "type": "node", "request": "attach", "subProcessId": 7}

    async def offer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        received = b""
        while b'"attach"' not in received and (data := await reader.read(65536)):
            received += data
        writer.write(encode({"seq": 1, "type": "event", "event": "debugpyAttach", "body": child}))
        await reader.read()

    port = free_port()
    async with (
        local_server(offer) as (target_port, _),
        forwarding(relay, port),
        serving(relay, port, target_port),
        await DapClient.connect("127.0.0.1", port, within=DEADLINE) as editor,
    ):
        attaching = asyncio.ensure_future(editor.request("attach", {"subProcess": True}, within=DEADLINE))
        line = await output(editor, "child process 7")
        assert line.startswith("child process 7 is not being debugged, because its settings differ")
        attaching.cancel()


async def test_an_editor_that_stops_waiting_is_answered(relay: LocalRelay) -> None:
    """`disconnect` of an editor that is held is answered, and its connection is closed."""
    port = free_port()
    async with forwarding(relay, port), await DapClient.connect("127.0.0.1", port, within=DEADLINE) as editor:
        waiting = asyncio.ensure_future(editor.request("initialize", VSCODE, within=None))
        await output(editor, "waiting for")
        assert {} == await editor.request("disconnect", {"restart": False}, within=DEADLINE)
        with pytest.raises(Exception, match="closed the connection"):
            await waiting


async def test_a_job_that_cannot_come_fails_initialize(relay: LocalRelay) -> None:
    """An editor that connects although waiting is in vain receives the sentence as the error of `initialize`."""
    port, wrong = free_port(), SasKeyCredential("send", secrets.new_key())
    async with (
        forwarding(relay, port, credential=wrong),
        await DapClient.connect("127.0.0.1", port, within=DEADLINE) as editor,
    ):
        with pytest.raises(RequestFailed, match=f"cannot debug port {port}: .*refused the credentials"):
            await editor.request("initialize", VSCODE, within=DEADLINE)


async def test_a_held_target_names_its_holder(relay: LocalRelay, tmp_path: Path) -> None:
    """The second of two clients, and the second editor of one client, are shown who holds the target since when."""
    port, other = free_port(), free_port()
    async with (
        debuggee(tmp_path) as (_, target_port, script),
        serving(relay, port, target_port),
        Tunnels(relay.endpoint, relay.sender, relay.tls, tunnel_key=KEY, settings=QUICK) as client,
        Forwarder(client, [port]),
        stopped_at_breakpoint(port, script),
    ):
        await until_announced(client, is_attached=True)
        async with await DapClient.connect("127.0.0.1", port, within=DEADLINE) as same_client:
            await same_client.request("initialize", VSCODE, within=DEADLINE)
            with pytest.raises(RequestFailed, match=r"is held by \S+@\S+ \(since \d\d:\d\d\)"):
                await same_client.request("attach", {"connect": {"port": port}}, within=DEADLINE)
        async with (
            Tunnels(relay.endpoint, relay.sender, relay.tls, tunnel_key=KEY, settings=QUICK) as tunnels,
            Forwarder(tunnels, [LocalPort(other, Destination(port))]),
            await DapClient.connect("127.0.0.1", other, within=DEADLINE) as other_client,
        ):
            with pytest.raises(RequestFailed, match=r"cannot debug .*: held by \S+@\S+ \(since \d\d:\d\d\)"):
                await other_client.request("initialize", VSCODE, within=DEADLINE)


async def test_a_client_that_comes_just_after_a_stop(
    relay: LocalRelay, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It learns of a stop that has not been announced to the others, because it has not lasted for long enough."""
    monkeypatch.setattr("relay_agent.agent.attachments.ANNOUNCE_DELAY", 10 * DEADLINE)
    port = free_port()
    async with (
        debuggee(tmp_path) as (_, target_port, script),
        serving(relay, port, target_port),
        Tunnels(relay.endpoint, relay.sender, relay.tls, tunnel_key=KEY, settings=QUICK) as client,
        Forwarder(client, [port]),
        stopped_at_breakpoint(port, script) as session,
    ):
        await until_announced(client, is_attached=True)
        assert LINE + 1 == await session.step()
        async with Tunnels(relay.endpoint, relay.sender, relay.tls, tunnel_key=KEY, settings=QUICK) as other:
            await other.discover_all()
            (held,) = (target.attachment for agent in other.roster for target in agent.targets)
            assert held is not None
            assert (True, f"{script.name}:{LINE + 1}") == (held.is_stopped, held.stopped_at)


async def test_an_interruption_of_the_tunnel_is_shown_and_the_step_is_carried_out(
    relay: LocalRelay, tmp_path: Path
) -> None:
    """While the relay is away a line reports it; a step pressed meanwhile is carried out when it is back."""
    async with (
        debuggee(tmp_path) as (_, target_port, script),
        tunnelled_to(relay, target_port, dap_only=True) as path,
        stopped_at_breakpoint(path.port, script) as session,
    ):
        await relay.server.stop()
        assert "it will be restored automatically" in await output(session.client, "is interrupted")
        stepping = asyncio.ensure_future(session.step())
        await relay.server.start()
        assert LINE + 1 == await stepping
        await output(session.client, " was restored after ")


async def test_a_client_that_stops_ends_the_sessions_of_its_editors(relay: LocalRelay, tmp_path: Path) -> None:
    """An editor receives the reason and `terminated` before its connection is closed."""
    port = free_port()
    async with debuggee(tmp_path) as (job, target_port, script), serving(relay, port, target_port):
        async with (
            forwarding(relay, port) as forwarder,
            await DapClient.connect("127.0.0.1", port, within=DEADLINE) as editor,
        ):
            await editor.attach({str(script): [{"line": LINE, "condition": "number == 7"}]}, within=DEADLINE)
            await editor.wait_for_event("stopped", within=DEADLINE)
            await forwarder.close()
            line = await output(editor, "this client was stopped")
            assert "this client was stopped; the job continues without a debugger" == line
            assert "restart" not in (await editor.wait_for_event("terminated", within=DEADLINE))["body"]
        assert (0, ["1000000"]) == (await job.finish())[:2]


async def test_an_agent_that_ends_is_reported(relay: LocalRelay, tmp_path: Path) -> None:
    """An editor receives the reason and `terminated`, and its last request is answered."""
    port = free_port()
    async with debuggee(tmp_path) as (_, target_port, script), contextlib.AsyncExitStack() as agent:
        await agent.enter_async_context(serving(relay, port, target_port))
        async with forwarding(relay, port), await DapClient.connect("127.0.0.1", port, within=DEADLINE) as editor:
            await editor.attach({str(script): [{"line": LINE, "condition": "number == 7"}]}, within=DEADLINE)
            await editor.wait_for_event("stopped", within=DEADLINE)
            await agent.aclose()
            await output(editor, "the job or its agent has exited")
            await editor.wait_for_event("terminated", within=DEADLINE)
            assert {} == await editor.request("disconnect", within=DEADLINE)


async def test_a_replaced_client_shows_its_editor_the_reason(
    relay: LocalRelay, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If another client has taken its place, a returning client reports it and ends the debug session."""
    monkeypatch.setattr(session_table, "REPLACE_IN_USE_AFTER", 0.0)
    settings = replace(QUICK, max_sessions=1)
    async with (
        debuggee(tmp_path) as (_, target_port, script),
        tunnelled_to(relay, target_port, dap_only=True, encrypted=False, settings=settings) as path,
        stopped_at_breakpoint(path.port, script) as session,
        Tunnels(relay.endpoint, relay.sender, relay.tls, settings=QUICK) as other,
    ):
        path.chaos.accepting = False
        path.chaos.cut()
        while path.agent._tunnels.in_contact:
            await asyncio.sleep(0.01)
        await asyncio.wait_for(other.discover_all(), DEADLINE)
        assert 0 == path.agent._tunnels.streams
        path.chaos.accepting = True
        await output(session.client, "the agent needed its place for another client (limit: 1)")
        await session.client.wait_for_event("terminated", within=DEADLINE)


@pytest.mark.parametrize(("command", "arguments"), [("terminate", {}), ("disconnect", {"terminateDebuggee": True})])
async def test_stop_does_not_end_the_job(
    relay: LocalRelay, tmp_path: Path, command: str, arguments: dict[str, Any]
) -> None:
    """`terminate` and `terminateDebuggee` only detach: the job runs to its own end."""
    port = free_port()
    async with (
        debuggee(tmp_path) as (job, target_port, script),
        serving(relay, port, target_port),
        forwarding(relay, port),
        await DapClient.connect("127.0.0.1", port, within=DEADLINE) as editor,
    ):
        await editor.attach({str(script): [{"line": LINE, "condition": "number == 7"}]}, within=DEADLINE)
        await editor.wait_for_event("stopped", within=DEADLINE)
        await editor.request(command, arguments, within=DEADLINE)
        await output(editor, "detached; the job continues")
        await editor.wait_for_event("terminated", within=DEADLINE)
        assert (0, ["1000000"]) == (await job.finish())[:2]


async def test_stop_ends_the_job_if_the_user_allows_it(relay: LocalRelay, tmp_path: Path) -> None:
    """With `allow_terminate`, `terminate` reaches debugpy, which ends the process."""
    port = free_port()
    async with (
        debuggee(tmp_path) as (job, target_port, script),
        serving(relay, port, target_port),
        forwarding(relay, port, allow_terminate=True),
    ):
        async with await DapClient.connect("127.0.0.1", port, within=DEADLINE) as editor:
            await editor.attach({str(script): [{"line": LINE, "condition": "number == 7"}]}, within=DEADLINE)
            await editor.wait_for_event("stopped", within=DEADLINE)
            await editor.request("terminate", within=DEADLINE)
        assert (0, []) == (await job.finish())[:2]


JOB = """\
import os, sys
os.chdir("elsewhere")
sys.path.insert(0, ROOT)
import relay_agent
relay_agent.start_remote_debugging("myhc", PORT, wait=3600)
print("done")
"""
"""A job that changes its directory before it waits for a debugger, as hydra does."""


@contextlib.asynccontextmanager
async def changed_directory(relay: LocalRelay, node: Path) -> AsyncIterator[tuple[Program, int]]:
    """Run the job in the directory `node`, with a client; yield the job and its local port."""
    port = free_port()
    (node / "elsewhere").mkdir(parents=True)
    (node / "train.py").write_text(JOB.replace("ROOT", repr(str(REPOSITORY))).replace("PORT", str(port)))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "train.py"),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=node,
        env=environment(**access(relay, node, "listen")),
    )
    try:
        job = Program(process)
        await job.line("waiting up to")
        async with running_client(relay, node, "--ports", str(port)):
            yield job, port
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


@pytest.mark.parametrize("is_given", [True, False])
async def test_the_directory_of_the_job_is_the_one_that_it_was_started_in(
    relay: LocalRelay, tmp_path: Path, is_given: bool
) -> None:
    """`"."`, and missing mappings if the editor's folder has the script, lead there though the job is elsewhere.

    The editor's script is another one, which is shown.
    """
    local = tmp_path / "laptop"
    local.mkdir()
    (local / "train.py").touch()
    async with changed_directory(relay, tmp_path / "node") as (job, port):
        async with await DapClient.connect("127.0.0.1", port, within=DEADLINE) as editor:
            mappings = [{"localRoot": str(local), "remoteRoot": "."}]
            arguments = {"pathMappings": mappings} if is_given else {"workspaceFolder": str(local)}
            found = await editor.attach({str(local / "train.py"): [{"line": 6}]}, within=DEADLINE, **arguments)
            assert [True] == [each["verified"] for each in found[str(local / "train.py")]]
            stopped = await editor.wait_for_event("stopped", within=DEADLINE)
            await output(editor, "train.py differs from the job's file on ")
            await editor.request("continue", {"threadId": stopped["body"]["threadId"]}, within=DEADLINE)
            if not is_given:
                assert f'"localRoot": "{local}", "remoteRoot": "."' in await output(editor, "has no pathMappings")
            await editor.request("disconnect", within=DEADLINE)
        await job.finish()


async def test_a_wrong_mapping_is_explained(relay: LocalRelay, tmp_path: Path) -> None:
    """Breakpoints that are not set come with the directory of the job, and with the mapping to write."""
    async with changed_directory(relay, tmp_path / "node") as (job, port):
        async with await DapClient.connect("127.0.0.1", port, within=DEADLINE) as editor:
            mappings = [{"localRoot": "/home/me", "remoteRoot": "/wrong"}]
            found = await editor.attach({"/home/me/train.py": [{"line": 6}]}, within=DEADLINE, pathMappings=mappings)
            assert [False] == [each["verified"] for each in found["/home/me/train.py"]]
            shown = await output(editor, "breakpoints in train.py are not set: ")
            assert f" does not find /wrong/train.py. The job was started in {tmp_path / 'node'}. hint: " in shown
            assert shown.endswith('"pathMappings": [{"localRoot": "/home/me", "remoteRoot": "."}]')
            await editor.wait_for_event(
                "terminated", within=DEADLINE
            )  # the job would wait longer for an earlier disconnect
        await job.finish()
