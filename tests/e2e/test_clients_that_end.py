"""Facts about a relay-client that ends at a breakpoint: its terminal is closed, or it is killed."""

import contextlib
import json
import re
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from relay_client.agents.tunnels import user_name
from relay_client.dap import DapClient
from relay_core.compat import timeout
from tests.support.debuggers.debuggee import LINE
from tests.support.jobs.running import access, running_client, running_job
from tests.support.machine.deadline import DEADLINE
from tests.support.machine.ports import free_port
from tests.support.machine.programs import Program, program, run
from tests.support.network.relay import HC, LocalRelay

pytestmark = pytest.mark.e2e

SCRIPT = """\
import itertools, time
for number in itertools.count():
    square = number * number
    time.sleep(0.02)
"""
TAKEN_OVER = f"rank 0 was stopped at train.py:4 by {user_name()}, whose connection was lost; that debugger was "
TAKEN_OVER += "replaced, and the job continued\n"


@contextlib.asynccontextmanager
async def stopped_rank(relay: LocalRelay, directory: Path, port: int = 0) -> AsyncIterator[Program]:
    """A relay-client whose editor has stopped a rank, by default on a free port; yields the relay-client."""
    script, port = directory / "train.py", port or free_port()
    script.write_text(SCRIPT)
    async with (
        running_job(relay, script, "--port", str(port), "--wait", "0", RELAY_RANK="0", RELAY_WORLD_SIZE="1"),
        running_client(relay, directory, "--ports", str(port)) as client,
        await DapClient.connect("127.0.0.1", port, within=DEADLINE) as editor,
    ):
        await editor.attach({str(script): [{"line": LINE}]}, within=DEADLINE)
        stop = (await editor.wait_for_event("stopped", within=DEADLINE))["body"]
        await editor.request("stackTrace", {"threadId": stop["threadId"]}, within=DEADLINE)  # as every editor does
        yield client


async def holder(env: dict[str, str]) -> str | None:
    found = await run("relay_client", "--hc", HC, "targets", "--json", env=env)
    held: str | None = json.loads(found.stdout)["nodes"][0]["targets"][0].get("holder")
    return held


async def until_free(env: dict[str, str]) -> None:
    async with timeout(DEADLINE):
        while await holder(env) is not None:
            pass


async def test_the_terminal_is_closed(relay: LocalRelay, tmp_path: Path) -> None:
    """It detaches, and the rank continues. Terminal and shell send SIGHUP, so a second one does not force the end."""
    async with stopped_rank(relay, tmp_path) as client:
        for _ in range(2):
            client.process.send_signal(signal.SIGHUP)
        assert 0 == (await client.finish()).status
        await until_free(access(relay, tmp_path, "send"))


async def test_it_is_killed(relay: LocalRelay, tmp_path: Path) -> None:
    """The rank stays held, which is shown as such, until the user attaches again or releases it with another one."""
    send = access(relay, tmp_path, "send")
    elsewhere = {**send, "RELAY_CLIENT_DIR": str(tmp_path / "elsewhere")}
    async with (
        stopped_rank(relay, tmp_path) as client,
        program("relay_client", "--hc", HC, "--forward", f"{free_port()}:{free_port()}", env=elsewhere) as second,
    ):
        await second.line("ready on")
        refused = await run("relay_client", "release", "0", env=elsewhere)
        assert (18, True) == (refused.status, "hint: quit it there: q in 'relay-client pdb'" in refused.stderr)
        client.process.kill()
        await second.line("(not connected)")
        assert " (not connected) for " in (await run("relay_client", "status", env=elsewhere)).stdout
        await run("relay_client", "attach", "0", env=elsewhere)
        assert " and take over, or run 'relay-client release 0' to let it continue" in await second.line("press F5 to")
        released = await run("relay_client", "release", "0", env=elsewhere)
        assert (0, "") == (released.status, released.stderr)
        await until_free(send)


async def test_its_user_is_refused(relay: LocalRelay, tmp_path: Path) -> None:
    """A prompt that may not attach, because relay-client is still connected, shows only who holds the rank."""
    env = {**access(relay, tmp_path, "send"), "RELAY_CLIENT_DIR": str(tmp_path / "elsewhere")}
    async with stopped_rank(relay, tmp_path):
        refused = await run("relay_client", "--hc", HC, "pdb", "0", env=env)
    assert (10, 1) == (refused.status, refused.stdout.count("\n"))  # the line that begins with `attaching to`
    assert f"error: rank 0 is held by {user_name()} (since " in refused.stderr
    assert refused.stderr.endswith(
        "hint: to free it, that user enters q in 'relay-client pdb', or ends the editor's session, for example by "
        "'relay-client release 0'\n"
    )
    assert "was stopped" not in refused.stdout + refused.stderr


async def test_its_user_comes_back(relay: LocalRelay, tmp_path: Path) -> None:
    """A prompt that takes over from a killed relay-client shows where the rank was stopped, and that it continues."""
    env = {**access(relay, tmp_path, "send"), "RELAY_CLIENT_DIR": str(tmp_path / "elsewhere")}
    async with stopped_rank(relay, tmp_path) as client:
        client.process.kill()
        await client.finish()
        done = await run("relay_client", "--hc", HC, "pdb", "0", env=env, stdin=b"q\n")
        assert 0 == done.status, done.stderr
        assert TAKEN_OVER in done.stdout
        await until_free(env)


async def test_ctrl_c_at_a_prompt_without_a_relay(relay: LocalRelay, tmp_path: Path) -> None:
    """A prompt whose rank runs shows which tunnel is interrupted, instead of a pause that reaches nobody."""
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    command = ("--hc", HC, "pdb", "0", "--no-stop")
    async with (
        running_job(relay, script, "--port", str(free_port()), RELAY_RANK="0", RELAY_WORLD_SIZE="1"),
        program("relay_client", *command, env=access(relay, tmp_path, "send"), has_stdin=True) as prompt,
    ):
        assert prompt.process.stdin is not None
        assert prompt.process.stdout is not None
        prompt.process.stdin.write(b"c\n")
        while b"the job is running" not in (line := await prompt.process.stdout.readline()):
            assert line, "the prompt has ended"
        await relay.server.stop()
        await prompt.line("reconnecting")
        shown = b""
        try:
            async with timeout(DEADLINE):
                while b"not paused" not in shown:  # the first signals may come before `c` is executed
                    prompt.process.send_signal(signal.SIGINT)
                    shown = await prompt.process.stdout.readline()
        finally:
            await relay.server.start()
    assert re.match(rb"not paused: the tunnel to \S+ is reconnecting \(since .*; a command that has not ", shown)


async def test_its_editor_comes_back(relay: LocalRelay, tmp_path: Path) -> None:
    """The debug console of the next session, through a new relay-client, shows the same sentence."""
    port = free_port()
    async with stopped_rank(relay, tmp_path, port) as client:
        client.process.kill()
        await client.finish()
        async with (
            running_client(relay, tmp_path, "--ports", str(port)),
            await DapClient.connect("127.0.0.1", port, within=DEADLINE) as editor,
        ):
            await editor.attach({}, within=DEADLINE)
            await editor.wait_for_event("output", matching=lambda body: TAKEN_OVER in body["output"], within=DEADLINE)
