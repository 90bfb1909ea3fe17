"""Facts about the end of a debugged job: what its editor receives, and how long the job takes to exit."""

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from relay_agent.job.paths import in_front
from relay_client.dap import DapClient
from relay_core.compat import timeout
from tests.support.jobs.processes import gone
from tests.support.jobs.running import access, agents_on, ranks_launcher, running_client, running_job, until_registered
from tests.support.machine.deadline import DEADLINE
from tests.support.machine.ports import free_port
from tests.support.machine.programs import Program, run
from tests.support.network.relay import HC, LocalRelay

END = "END"
SCRIPT = """\
import os, sys
print("the breakpoint", flush=True)
END
"""
NO_LIMITS = """\
import sys

if "node-agent" in sys.orig_argv:
    from relay_agent.node.in_agent import server

    server.DRAIN_TIMEOUT = server.EXIT_TIMEOUT = 3600.0
"""
"""A `sitecustomize` with which the agent keeps an exiting job until it regards the debug session as ended, and waits
for the exit of a process as long as it takes."""
SLOW_EXIT = """\
import os

class Slow:
    def __del__(self, open=os.open, read=os.read):
        read(open("exit", 0), 1)

slow = Slow()
os.read(os.open("end", 0), 1)
"""
"""A script whose interpreter is being finalized until somebody writes to a pipe, as one with torch is for seconds."""


@dataclass
class Scene:
    """A job that stands before its last line, and its editor."""

    job: Program
    client: Program
    editor: DapClient
    thread: int
    port: int

    async def end(self) -> list[tuple[str, dict[str, Any]]]:
        """Continue, and return the events from relay-client's line on."""
        await self.editor.request("continue", {"threadId": self.thread}, within=DEADLINE)
        return await self.last_events()

    async def last_events(self) -> list[tuple[str, dict[str, Any]]]:
        """Return relay-client's lines, `exited` and `terminated`."""
        events: list[tuple[str, dict[str, Any]]] = []
        while not events or events[-1][0] != "terminated":
            event = await self.editor.wait_for_event("output", "exited", "terminated", within=DEADLINE)
            body = event.get("body", {})
            if event["event"] != "output" or body["output"].startswith("relay-client: the job "):
                events.append((event["event"], body))
        return events


@contextlib.asynccontextmanager
async def before_its_end(relay: LocalRelay, directory: Path, end: str, **variables: str) -> AsyncIterator[Scene]:
    """Run a job until it stands at a breakpoint before its last line."""
    script, port = directory / "train.py", free_port()
    script.write_text(SCRIPT.replace(END, end))
    async with (
        running_job(relay, script, "--debug-port", str(port), **variables) as job,
        running_client(relay, directory, "--ports", str(port)) as client,
        await DapClient.connect("127.0.0.1", port, within=DEADLINE) as editor,
    ):
        await editor.attach({str(script): [{"line": 2}]}, within=DEADLINE)
        stopped = await editor.wait_for_event("stopped", within=DEADLINE)
        yield Scene(job, client, editor, stopped["body"]["threadId"], port)


@pytest.mark.parametrize(
    ("end", "line", "status"),
    [
        ("sys.exit(3)", "the job ended with status 3", 3),
        ("raise ValueError('boom')", "the job ended with status 1: ValueError: boom", 1),
        ("pass", "the job ended with status 0", 0),
        (
            "os.kill(os.getpid(), 9)",
            "the job was killed by SIGKILL (the usual cause is lack of memory)",
            137,
        ),
        ("os._exit(4)", "the job ended with status 4", 4),
    ],
)
async def test_the_editor_receives_how_the_job_has_ended(
    relay: LocalRelay, tmp_path: Path, end: str, line: str, status: int
) -> None:
    """The reason, `exited` with the exit code and `terminated`, in this order."""
    async with before_its_end(relay, tmp_path, end) as scene:
        events = await scene.end()
        assert ["output", "exited", "terminated"] == [name for name, _ in events], events
        output, exited, terminated = events
        assert f"relay-client: {line}\n" == output[1]["output"]
        assert ("exited", {"exitCode": status}) == exited
        assert "restart" not in terminated[1]
        await scene.editor.request("disconnect", within=DEADLINE)


async def test_a_rank_that_exits_slowly(relay: LocalRelay, tmp_path: Path) -> None:
    """All commands regard it as ended from the same moment on; the only log line about it has its name and status."""
    (script := tmp_path / "train.py").write_text(SLOW_EXIT)
    (tmp_path / "sitecustomize.py").write_text(NO_LIMITS)
    for pipe in ("end", "exit"):
        os.mkfifo(tmp_path / pipe)
    options = ("--debug-port", str(free_port()), "--debug-ranks", "none")
    search, env = in_front(tmp_path, os.environ.get("PYTHONPATH")), access(relay, tmp_path, "send")

    async def output(*command: str) -> str:
        finished = await run("relay_client", "--hc", HC, *command, env=env)
        return finished.stdout + finished.stderr

    async with (
        running_job(relay, script, *options, launcher=ranks_launcher(1), cwd=tmp_path, PYTHONPATH=search) as job,
        running_client(relay, tmp_path, "--ports", str(free_port())) as client,
    ):
        await until_registered(relay, tmp_path, 1)
        await asyncio.to_thread((tmp_path / "end").write_text, "x")
        async with timeout(DEADLINE):
            while "no matching process is registered" not in await output("eval", "1"):
                pass
        assert "no targets" in await output("targets")
        assert job.process.returncode is None
        await asyncio.to_thread((tmp_path / "exit").write_text, "x")
        assert " rank 0 on " in await client.line("ended with status 0")
        assert "became unavailable" not in client.stderr


async def test_a_job_that_replaces_itself(relay: LocalRelay, tmp_path: Path) -> None:
    """The editor receives the name of the new program, which then registers with the same port."""
    (tmp_path / "next.py").write_text("")
    line = "the job has replaced itself with next.py (exec); attach again to debug that program"
    run_next = f"os.execv(sys.executable, [sys.executable, {str(tmp_path / 'next.py')!r}])"
    async with before_its_end(relay, tmp_path, run_next) as scene:
        events = await scene.end()
        assert ["output", "terminated"] == [name for name, _ in events], events
        assert f"relay-client: {line}\n" == events[0][1]["output"]
        await scene.editor.request("disconnect", within=DEADLINE)
        async with await DapClient.connect("127.0.0.1", scene.port, within=DEADLINE) as editor:
            await editor.attach({}, within=DEADLINE)


async def test_a_job_that_is_killed_at_a_breakpoint(relay: LocalRelay, tmp_path: Path) -> None:
    """The editor of a stopped job receives that it was killed."""
    async with before_its_end(relay, tmp_path, "pass") as scene:
        os.kill(scene.job.process.pid, signal.SIGTERM)
        events = await scene.last_events()
        assert ["output", "exited", "terminated"] == [name for name, _ in events], events
        output, exited, _ = events
        assert "relay-client: the job was killed by SIGTERM\n" == output[1]["output"]
        assert {"exitCode": 143} == exited[1]


async def test_a_job_does_not_wait_for_an_editor_that_stays(relay: LocalRelay, tmp_path: Path) -> None:
    """A job exits although its editor stays connected after `terminated`, without reaching any time limit."""
    (tmp_path / "sitecustomize.py").write_text(NO_LIMITS)
    search = in_front(tmp_path, os.environ.get("PYTHONPATH"))
    without_limit = "__import__('relay_agent.node.in_job.client').node.in_job.client.LEAVE_TIMEOUT = 3600"
    async with before_its_end(relay, tmp_path, without_limit, PYTHONPATH=search) as scene:
        await scene.end()
        assert await gone(scene.job.process.pid)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_relay_client_is_stopped(relay: LocalRelay, tmp_path: Path, number: signal.Signals) -> None:
    """The editor receives the reason and `terminated` before relay-client ends, and the job runs to its own end."""
    async with before_its_end(relay, tmp_path, "pass") as scene:
        scene.client.process.send_signal(number)
        text = "relay-client: this client was stopped; the job continues without a debugger"
        await scene.editor.wait_for_event("output", matching=contains(text), within=DEADLINE)
        await scene.editor.wait_for_event("terminated", within=DEADLINE)
        assert 0 == (await scene.client.finish()).status
        assert 0 == (await scene.job.finish()).status


async def test_the_agent_is_killed(relay: LocalRelay, tmp_path: Path) -> None:
    """An editor that honours `restart` is asked to attach again; its new connection reaches the job."""
    script, port = tmp_path / "train.py", free_port()
    script.write_text(SCRIPT.replace(END, "__import__('time').sleep(3600)"))
    async with (
        running_job(relay, script, "--debug-port", str(port)),
        running_client(relay, tmp_path, "--ports", str(port)),
    ):
        async with await DapClient.connect("127.0.0.1", port, within=DEADLINE) as editor:
            await editor.request("initialize", {"clientID": "vscode", "adapterID": "debugpy"}, within=DEADLINE)
            attaching = asyncio.ensure_future(editor.request("attach", {"request": "attach"}, within=DEADLINE))
            await editor.wait_for_event("initialized", within=DEADLINE)
            await editor.request("configurationDone", within=DEADLINE)
            await attaching
            await editor.wait_for_event("process", within=DEADLINE)  # of the debugger itself
            (agent,) = agents_on(tmp_path / "node")
            agent.kill()
            await editor.wait_for_event(
                "output", matching=contains("the connection to the agent was lost: the agent "), within=DEADLINE
            )
            terminated = await editor.wait_for_event("terminated", within=DEADLINE)
            assert "restart" in terminated["body"]
        async with await DapClient.connect("127.0.0.1", port, within=DEADLINE) as again:
            await again.attach({}, within=DEADLINE)
            await again.request("disconnect", within=DEADLINE)


def contains(text: str) -> Callable[[dict[str, Any]], bool]:
    """Return a test whether an output event contains a text."""
    return lambda body: text in body.get("output", "")
