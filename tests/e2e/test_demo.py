"""Facts about `relay-client demo`: it shows a breakpoint hit through a relay, and fails if there is none to show."""

import asyncio
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from relay_client.dap import DapClient
from relay_client.demo.environment import DemoEnvironment, DemoFailed, Sample, find_sample
from relay_client.demo.walkthrough import STEPS, run_walkthrough
from tests.support.jobs.processes import ROOT, gone
from tests.support.machine.deadline import DEADLINE
from tests.support.machine.ports import free_port

pytestmark = pytest.mark.e2e

FAILING = """import sys
from relay_client.cli import run
from relay_client.demo import walkthrough
walkthrough.BREAKPOINT_CONDITION = "epoch == -1"
sys.argv = ["relay-client", "demo"]
run()
"""


async def run(*command: str) -> tuple[int, str, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, *command, cwd=ROOT, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    out, err = await asyncio.wait_for(process.communicate(), DEADLINE)
    assert process.returncode is not None
    print(out.decode(), err.decode(), sep="\n")
    return process.returncode, out.decode(), err.decode()


async def test_demo():
    """The demo succeeds, and reports each step."""
    status, out, err = await run("-m", "relay_client", "demo")
    assert (status, err) == (0, "")
    sentences = [line.split(" s  ", 1)[1] for line in out.splitlines()]
    assert len(sentences) == len(STEPS) + 4
    assert re.search(r"attached, with a breakpoint at train.py:\d+ if epoch == 3\n", out)
    assert re.search(r"stopped in train_step, train.py:\d+, in the source on this machine\n", out)
    assert "still 'epoch 2: loss " in out
    assert "ended with status 0: 'done: loss 0.1336 after 60 epochs'" in out
    assert sentences[-1] == "all programs have been stopped; every step above was checked"


async def test_demo_with_cuts():
    """`demo --chaos` cuts the tunnel six times at the breakpoint, reports each cut, and continues stepping."""
    status, out, err = await run("-m", "relay_client", "demo", "--chaos")
    assert (status, err) == (0, "")
    assert "cut the tunnel 5 times: the job is still stopped at the breakpoint" in out
    cuts = re.findall(r"cut (\d) of 5: the tunnel was restored, and the debugger responded after [0-9.]+ s\n", out)
    assert list("12345") == cuts
    assert "stepped into forward" in out


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_make_demo(tmp_path):
    """`make demo` installs only what users need, passes on the options in `DEMO`, and ends with existing commands."""
    environment = f"DEMO_VENV={tmp_path}"
    steps = make("-n", "demo", environment, "DEMO=--chaos").splitlines()
    assert f"{tmp_path}/bin/python -m pip install --quiet --disable-pip-version-check -e '.[client]' && \\" in steps
    assert f"{tmp_path}/bin/relay-client demo --chaos" in steps
    (tmp_path / "bin").symlink_to(Path(sys.executable).parent)
    (tmp_path / ".ready").touch()
    out = make("--silent", "demo", environment, "DEMO=--help")
    assert "usage: relay-client demo" in out
    assert out.endswith(
        f"run: make demo DEMO=--hold\nFor commands such as relay-client in this shell, run: . {tmp_path}/bin/activate\n"
    )


def make(*arguments: str) -> str:
    return subprocess.run(
        ["make", *arguments], cwd=ROOT, check=True, timeout=DEADLINE, stdout=subprocess.PIPE, text=True
    ).stdout


async def test_demo_without_a_stop_fails():
    """With a condition that never holds the demo fails, with the programs' output and one sentence."""
    status, out, err = await run("-c", FAILING)
    assert status == 1
    assert "attached, with a breakpoint" in out
    assert "stopped in" not in out
    assert re.fullmatch(r"relay-client: error: the job ended without stopping at train.py:\d+", err.splitlines()[-1])
    assert "--- job printed:\n" in err
    assert "relay-agent: debugger attached after" in err


async def test_hold_ends_with_ctrl_c():
    """`demo --hold` prints how to attach, waits, and on Ctrl-C ends everything that it started and logs this."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "relay_client", "demo", "--hold"),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    read = await asyncio.wait_for(process.stdout.readuntil(b"Press Ctrl-C to stop the demo.\n"), DEADLINE)
    assert '"remoteRoot": "."' in read.decode()
    children = psutil.Process(process.pid).children(recursive=True)
    names = {word for child in children for word in child.cmdline() if word in {"train.py", "serve", "relay_client"}}
    assert names == {"train.py", "serve", "relay_client"}
    process.send_signal(signal.SIGINT)
    assert await asyncio.wait_for(process.wait(), DEADLINE) == 0
    assert await asyncio.gather(*(gone(child.pid) for child in children)) == [True] * len(children)
    assert (await process.stdout.read()).decode().endswith(" s  all programs have been stopped\n")
    assert b"" == await process.stderr.read()


class _RunningJob:
    """A job whose output grows, as if it were not stopped."""

    def __init__(self) -> None:
        self._lines = ["epoch 1"]

    def lines(self) -> list[str]:
        self._lines.append("one more")
        return list(self._lines)

    async def wait(self, *, within: float | None = None) -> int:
        return 0


async def test_job_that_is_not_stopped(tmp_path):
    """Output that grows while the job should be stopped at its breakpoint fails the demo."""
    sample, reported = find_sample(), []
    async with DemoEnvironment(sample, tmp_path, epochs=60, wait=3600, port=free_port()) as running:
        with pytest.raises(DemoFailed, match="what the stopped job has printed and computed: expected "):
            await run_walkthrough(running.port, sample, _RunningJob(), reported.append)
    assert reported[-1].startswith("variables: ")


async def test_program_that_ends_too_early(tmp_path):
    """The demo notices when a program that it needs ends."""
    async with DemoEnvironment(find_sample(), tmp_path, epochs=60, wait=3600, port=free_port()) as running:
        for child in running.children:
            if child.name == "relay":
                await child.end()
        with pytest.raises(DemoFailed, match="the relay exited too early"):
            await asyncio.wait_for(running.watch(), DEADLINE)


async def test_debugger_receives_the_end(tmp_path):
    """A debugger that is still attached when the job ends gets `terminated`, before the agent leaves with the job."""
    async with DemoEnvironment(find_sample(), tmp_path, epochs=2, wait=3600, port=free_port()) as running:
        async with await DapClient.connect("127.0.0.1", running.port, within=DEADLINE) as client:
            await client.attach({}, within=DEADLINE)
            await client.wait_for_event("terminated", within=DEADLINE)
        assert await running.job.wait(within=DEADLINE) == 0


def test_changed_sample(tmp_path: Path):
    """A sample without the line that the walkthrough stops at is an error that names both."""
    (tmp_path / "train.py").write_text("a = 1\na = 1\n")
    with pytest.raises(DemoFailed, match="'a = 1' is on 2 lines of .*train.py; expected exactly one"):
        Sample(tmp_path).line_of("a = 1")


async def test_sample_runs_on_its_own():
    """The sample is an ordinary script: without debugging arguments it trains and ends."""
    status, out, err = await run("samples/plain_python/train.py", "--epochs", "2")
    assert (status, err) == (0, "")
    assert out.splitlines()[-1] == "done: loss 0.5438 after 2 epochs"
