"""Facts about samples/crash: its page's commands hold a job where it crashed, show it, and let it end as ever."""

import pytest

from relay_client.dap import DapClient
from tests.samples.kit import (
    SAMPLES,
    Running,
    client_settings,
    commands,
    environment,
    line_of,
    on_ports,
    running,
)
from tests.support.editors.stopped import Stopped
from tests.support.machine.deadline import DEADLINE
from tests.support.machine.ports import free_port
from tests.support.machine.programs import run

SAMPLE = SAMPLES / "crash"
SCRIPT = SAMPLE / "train.py"
INSTALL, LOCAL, WAIT, TARGETS, PDB, JOB, CLIENT = commands(SAMPLE / "README.md")


def test_one_command():
    """What is tried on this machine is the very command of a job elsewhere."""
    assert JOB == LOCAL[LOCAL.index("--") + 1 :]


async def assert_its_own_end(job: Running) -> None:
    """Wait until the job has ended as an uncaught exception ends a program."""
    assert 1 == await job.finish()
    assert 1 == job.output.count("Traceback (most recent call last)")
    assert 1 == job.output.count("\nValueError: could not convert string to float: 'n/a'")


@pytest.mark.e2e
async def test_debugger_at_the_raising_line():
    """A debugger that attaches stands at the line that raised, with its variables; the job ends with its own status."""
    port = free_port()
    async with running(*on_ports(LOCAL, port), cwd=SAMPLE, env=environment()) as job:
        await job.line(f"held for up to 120 s; a debugger can attach on port {port}")
        async with await DapClient.connect("127.0.0.1", port, within=DEADLINE) as client:
            mapping = {"localRoot": str(SAMPLE), "remoteRoot": "."}
            await client.attach({}, within=DEADLINE, pathMappings=[mapping], justMyCode=False)
            stop = Stopped(client)
            assert "exception" == (await stop.until_stopped())["reason"]
            top = await stop.frame()
            assert (str(SCRIPT), line_of(SCRIPT, "map(float")) == (top["source"]["path"], top["line"])
            assert ("7", "'0.4;n/a'") == (await stop.value("step"), await stop.value("reading"))
            await client.request("disconnect", {"terminateDebuggee": False}, within=DEADLINE)
        await assert_its_own_end(job)


@pytest.mark.e2e
async def test_without_an_editor():
    """The page's relay-client commands wait for the crash, name it, and show the variables at the line that raised."""
    port = free_port()
    async with running(*on_ports(LOCAL, port), cwd=SAMPLE, env=environment()) as job:
        settings = await client_settings(job)
        assert 0 == (await run("relay_client", *WAIT[1:], env=settings)).status
        listed = await run("relay_client", *TARGETS[1:], env=settings)
        assert "train.py  crashed: ValueError: could not convert string to float: 'n/a'" in listed.stdout
        seen = await run("relay_client", *PDB[1:], env=settings, stdin=b"p reading\nq\n")
        assert f"train.py({line_of(SCRIPT, 'map(float')})train_step()" in seen.stdout
        assert "'0.4;n/a'\n" in seen.stdout
        await assert_its_own_end(job)
