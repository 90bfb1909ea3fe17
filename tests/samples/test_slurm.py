"""Facts about samples/slurm: its batch script under a stand-in for srun, which sets the variables that Slurm sets."""

import os

import pytest

from tests.samples.kit import SAMPLES, agent_settings, breakpoint_hit, client_of, environment, running
from tests.support.machine.ports import free_port

SAMPLE = SAMPLES / "slurm"
SCRIPT = SAMPLES / "container" / "train.py"
SRUN = """#!/bin/bash
for task in 0 1 2 3; do
  SLURM_PROCID=$task SLURM_LOCALID=$((task % 2)) SLURM_NODEID=$((task / 2)) SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=4 \\
  SLURM_NTASKS=4 SLURM_NTASKS_PER_NODE=2 RELAY_NODE_DIR=$RELAY_NODE_DIR/$((task / 2)) "$@" &
done
for task in 0 1 2 3; do wait -n || exit; done
"""
"""Runs a command once for each of the tasks, two on each node, as `srun` does; the nodes have different directories."""


@pytest.fixture
def cluster(tmp_path):
    """The environment of a batch script, in which `srun` is the stand-in."""
    srun = tmp_path / "srun"
    srun.write_text(SRUN)
    srun.chmod(0o755)
    found = environment(SLURM_JOB_ID=str(os.getpid()))
    return found | {"PATH": f"{tmp_path}{os.pathsep}{found['PATH']}"}


@pytest.mark.e2e
async def test_ordinary_job(cluster):
    """Without RELAY_DEBUG, all ranks run as usual."""
    async with running("bash", "train.sbatch", cwd=SAMPLE, env=cluster) as job:
        assert 0 == await job.finish()
        assert (4, 0) == (job.output.count("step 20: "), job.output.count("relay-agent"))


@pytest.mark.e2e
async def test_debug_job(cluster, relay, tmp_path):
    """With it, rank 0 waits for a debugger and stops at a breakpoint; the others do not wait."""
    port = free_port()
    secret = str(relay.connection_file(tmp_path, "listen"))
    settings = {"RELAY_CONNECTION_STRING_FILE": secret, "RELAY_CA_FILE": agent_settings(relay)["RELAY_CA_FILE"]}
    debug = cluster | settings | {"RELAY_DEBUG": "wait", "RELAY_DEBUG_PORT": str(port)}
    async with (
        client_of(relay, port),
        running("bash", "train.sbatch", cwd=SAMPLE, env=debug) as job,
    ):
        async with breakpoint_hit(port, SCRIPT, "return (guess", remote_root=SCRIPT.parent) as stop:
            assert ("improve", "2.0") == (await stop.function(), await stop.value("number"))
        assert 0 == await job.finish()
        assert "rank 0: debugger attached" in job.output
        assert f"rank 3: a debugger can attach on port {port + 3} " in job.output
