"""Facts about `submit.py --local`: the pipeline's own commands run on this machine, with a debugger in each step."""

import json
import signal
import sys

import pytest

from relay_agent.azureml import Step
from tests.samples.kit import SAMPLES, breakpoint_hit, environment, free_ports, load, needs_sdk, needs_torch, running

SAMPLE = SAMPLES / "azureml_pipeline"
STEPS = SAMPLE / "steps"
DEBUG = ["--is-debug", "true", "--debug-relay-connection-name", "myhc"]
WITHOUT_TORCH = "import runpy, sys; sys.modules['torch'] = None; runpy.run_path('submit.py', run_name='__main__')"
ABORTED_AT_EXIT = "\nterminate called without an active exception\n"
"""What torch 2.13 writes if a thread of gloo outlives the interpreter, after a model of DistributedDataParallel.

The thread drops its last reference to a Python object, `pthread_exit` ends it, and std::terminate the process, although
the process group was destroyed. It happens with debugging and without (https://github.com/pytorch/pytorch/pull/179291).
"""

pytestmark = pytest.mark.e2e


@needs_sdk
async def test_ordinary_run():
    """`--local` without debugging just runs the steps; without torch it prints which one it skipped."""
    async with running(sys.executable, "-c", WITHOUT_TORCH, "--local", cwd=SAMPLE, env=environment()) as local:
        assert 0 == await local.finish()
    assert [
        "--- prepare",
        "prepare: wrote 8 files",
        "--- featurize",
        "featurize: handled 8 files",
        "--- train: skipped, because torch is not installed",
        "--- all done",
    ] == local.output.splitlines()


def step(command: str, **settings) -> Step:
    """A step as it is in a REST body."""
    spec = {"command": command, "code": str(STEPS), "inputs": {}, "outputs": {}}
    return Step("step", {"componentId": {"properties": {"componentSpec": spec}}, **settings}, {})


@pytest.mark.parametrize("status", [0, 3])
def test_status_of_a_step(status, tmp_path):
    """A step ends as its command does, which runs in a copy of its code folder."""
    command = f"test -f train.py && touch made-by-the-step && exit {status}"
    assert status == load(SAMPLE / "local_run.py").run_step(step(command), tmp_path, environment())
    assert not (STEPS / "made-by-the-step").exists()
    assert (tmp_path / "step" / "code" / "made-by-the-step").exists()


def test_ranks(tmp_path):
    """Each process of a distributed step gets its place in the variables that Azure ML sets."""
    job = step(
        f"echo $NODE_RANK $LOCAL_RANK $RANK $WORLD_SIZE $MASTER_ADDR > {tmp_path}/$RANK",
        resources={"instance_count": 2},
        distribution={"process_count_per_instance": 2},
    )
    assert 0 == load(SAMPLE / "local_run.py").run_step(job, tmp_path, environment())
    places = [(tmp_path / str(rank)).read_text().split() for rank in range(4)]
    assert [[f"{rank // 2}", f"{rank % 2}", f"{rank}", "4", "127.0.0.1"] for rank in range(4)] == places


def test_failing_rank(tmp_path):
    """When one process of a step fails, the others are ended and do not wait for it."""
    job = step("[ $RANK = 1 ] && exit 3; sleep 600", distribution={"process_count_per_instance": 2})
    assert 3 == load(SAMPLE / "local_run.py").run_step(job, tmp_path, environment())


@needs_sdk
async def test_stopped_run():
    """Ctrl-C ends the run, and with it the relay, the client, the step and its agent."""
    command = [sys.executable, "submit.py", "--local", *DEBUG, "--debug-port", str(free_ports(6))]
    async with running(*command, cwd=SAMPLE, env=environment()) as local:
        await local.line("relay-agent: waiting up to 600 s for a debugger")
        local.process.send_signal(signal.SIGINT)
        assert 130 == await local.finish()
    assert "Traceback" not in local.output


@needs_sdk
async def test_commands_for_a_terminal(tmp_path):
    """The commands that a debug run prints list its first step."""
    port = free_ports(6)
    command = [sys.executable, "submit.py", "--local", *DEBUG, "--debug-port", str(port)]
    async with running(*command, cwd=SAMPLE, env=environment()) as local:
        await local.line("relay-agent: waiting up to 600 s for a debugger")
        printed = [line for line in local.output.splitlines() if line.startswith(("    export ", "    relay-client "))]
        async with running("bash", "-c", "\n".join(printed), cwd=tmp_path, env=environment()) as terminal:
            assert 0 == await terminal.finish()
            assert f" {port} " in terminal.output
        local.process.send_signal(signal.SIGINT)
        assert 130 == await local.finish()


@needs_sdk
@needs_torch
async def test_breakpoint_in_each_step():
    """`--local --is-debug true` stops at a breakpoint in each of the three steps, through a relay, and ends well."""
    port = free_ports(6)
    command = [sys.executable, "submit.py", "--local", *DEBUG, "--debug-port", str(port)]
    async with running(*command, cwd=SAMPLE, env=environment()) as local:
        await local.line(f"--- prepare, debugger port {port}")
        async with breakpoint_hit(port, STEPS / "prepare.py", "points = draw(100, rng)") as stop:
            assert ("main", "True") == (await stop.function(), await stop.value("options.is_debug"))
        await local.line(f"--- featurize, debugger port {port + 1}")
        async with breakpoint_hit(port + 1, STEPS / "featurize.py", "return f") as stop:
            assert ("featurize", "'part-00.csv'") == (await stop.function(), await stop.value("path.name"))
        await local.line(f"--- train, debugger port {port + 2}")
        async with breakpoint_hit(port + 2, STEPS / "train.py", "loss.backward()", condition="epoch == 3") as stop:
            assert ("train_step", "3") == (await stop.function(), await stop.value("epoch"))
            assert "(0, 4)" == await stop.value("(dist.get_rank(), dist.get_world_size())")
        assert 0 == await local.finish()
    assert 3 == local.output.count("debugger attached after")
    assert 4 == local.output.count("train: rank ")
    assert local.output.endswith("--- all done\n")


@needs_torch
async def test_train_under_torchrun(tmp_path):
    """The PyTorch step also runs under two launches of torchrun, as on two nodes, and continues without a relay."""
    features, port = tmp_path / "features", free_ports(1)
    features.mkdir()
    for number in range(4):
        (features / f"{number}.csv").write_text("0.1,0.1,0.02,1\n0.9,0.9,1.62,0\n")
    launch = [sys.executable, "-m", "torch.distributed.run", "--nnodes=2", "--nproc-per-node=1"]
    launch += ["--master-addr=127.0.0.1", f"--master-port={port}"]
    script = ["train.py", "--features", str(features), "--model", str(tmp_path / "model"), "--epochs", "2"]
    script += ["--is-debug", "True", "--debug-relay-connection-name", "myhc"]
    env = environment(RELAY_CONNECTION_STRING="not a connection string")
    async with (
        running(*launch, "--node-rank=0", *script, cwd=STEPS, env=env) as first,
        running(*launch, "--node-rank=1", *script, cwd=STEPS, env=env) as second,
    ):
        for torchrun in (first, second):
            assert 0 == await torchrun.finish() or ABORTED_AT_EXIT in torchrun.output, torchrun.output
    assert 1 == first.output.count("of 2: loss")
    assert 1 == second.output.count("of 2: loss")
    assert "continuing without a debugger" in first.output
    assert "relay-agent: " in second.output
    assert {"weights", "bias"} == json.loads((tmp_path / "model" / "model.json").read_text()).keys()
