"""Facts about samples/distributed: four real ranks, debugged with its page's commands."""

import asyncio
import json

import pytest

from relay_core.compat import timeout
from tests.samples.kit import (
    SAMPLES,
    breakpoint_hit,
    client_settings,
    commands,
    environment,
    free_ports,
    line_of,
    needs_torch,
    on_ports,
    running,
)
from tests.support.machine.deadline import DEADLINE
from tests.support.machine.programs import run

SAMPLE = SAMPLES / "distributed"
SCRIPT = SAMPLE / "train.py"
REDUCE = "dist.all_reduce(gradient)"
INSTALL, LOCAL, CHECK, CLUSTER, CLIENT, WAIT, TARGETS, STACKS, ARGUMENTS = commands(SAMPLE / "README.md")
WAITING = "in all_reduce, waiting for rank 3"
BEHIND_RELAY = ["python", "../shared/local_relay.py", "--"]


def test_one_configuration_for_each_rank():
    """launch.json attaches to all ranks in one session first, to rank n at the first port plus n, and to each rank."""
    launch = json.loads((SAMPLE / ".vscode" / "launch.json").read_text())
    job, *configurations = launch["configurations"]
    port = CLIENT[CLIENT.index("--all-ranks") + 1]
    assert (f"all ranks ({port})", int(port)) == (job["name"], job["connect"]["port"])
    first, last = map(int, CLIENT[-1].split("-"))
    ports = range(first, last + 1)
    assert list(ports) == [configuration["connect"]["port"] for configuration in configurations]
    names = [f"rank {rank} ({port})" for rank, port in enumerate(ports)]
    assert names == [configuration["name"] for configuration in configurations]
    assert ["each rank", names] == [launch["compounds"][0][field] for field in ("name", "configurations")]


@pytest.mark.e2e
@needs_torch
async def test_check():
    """`run.py --check` runs the page's command, stops every rank at the same line and step, and lets the job end."""
    first = free_ports(5)
    options = ["--port", str(first), "--all-ranks", str(first + 4)]
    async with running(*CHECK, *options, cwd=SAMPLE, env=environment()) as check:
        assert 0 == await check.finish()
    assert f"The job: {' '.join(CLUSTER)}\n" in check.output.replace(f" --port {first}", "")
    place = f"stopped in train_step, train.py:{line_of(SCRIPT, REDUCE)}: step = 3, loss = 0."
    for rank in range(4):
        assert f"\nrank {rank} {place}" in check.output
        assert f"\nrank {rank} {place}" in (SAMPLE / "README.md").read_text()
    assert 4 == check.output.count(" of 4: loss ")


@pytest.mark.e2e
@needs_torch
async def test_check_of_a_job_that_ends_at_its_start():
    """`run.py --check` ends with the status of a job that has ended before a debugger could attach."""
    first = free_ports(5)
    options = ["--port", str(first), "--all-ranks", str(first + 4), "--debug-ranks", "nonsense"]
    async with running(*CHECK, *options, cwd=SAMPLE, env=environment()) as check:
        assert 2 == await check.finish()
    assert "run.py: error: the job ended with status 2 before the check was complete" in check.output


@pytest.mark.e2e
@needs_torch
async def test_hold_rank_3():
    """While rank 3 stands at a breakpoint the page's commands list all ranks, and show the others waiting for it."""
    first = free_ports(5)
    options = ["--port", str(first), "--all-ranks", str(first + 4), "--debug-ranks", "3"]
    async with running(*LOCAL, *options, cwd=SAMPLE, env=environment()) as job:
        settings = await client_settings(job)
        async with breakpoint_hit(first + 3, SCRIPT, REDUCE, condition="step == 3") as stop:
            assert "3" == await stop.value("rank")
            assert 0 == (await run("relay_client", *WAIT[1:], env=settings)).status
            table = ""
            async with timeout(DEADLINE):  # a stop is announced half a second later, and what the others wait for later
                while " stopped" not in table or 3 != table.count(WAITING):
                    table = (await run("relay_client", *TARGETS[1:], env=settings)).stdout
            _, *rows = table.splitlines()
            listed = [row.split()[2:4] + row.split()[6:7] for row in rows]
            assert [[f"{rank}", f"{first + rank}", "in"] for rank in range(3)] == listed[:3]
            assert [["3", f"{first + 3}", "stopped"]] == listed[3:]
            async with timeout(DEADLINE):  # until they have gone as far as they can
                while "3 ranks (0-2) in all_reduce" not in (await stacks(settings)):
                    await asyncio.sleep(0.1)
        assert 0 == await job.finish()


async def stacks(settings: dict[str, str]) -> str:
    """Return what the page's command shows of the ranks' stacks."""
    return (await run("relay_client", *STACKS[1:], env=settings)).stdout


@pytest.mark.e2e
@needs_torch
async def test_arguments_of_the_script():
    """The script with two calls of relay_agent takes the page's arguments: rank 3 waits, and the others for it."""
    first = free_ports(4)
    command = on_ports([*BEHIND_RELAY, *ARGUMENTS], first, first + 3)
    async with running(*command, "--debug-port", str(first), cwd=SAMPLE, env=environment()) as job:
        await job.line(f"rank 3: waiting up to 600 s for a debugger on port {first + 3}")
        async with breakpoint_hit(first + 3, SCRIPT, REDUCE) as stop:
            assert ("3", "1") == (await stop.value("rank"), await stop.value("step"))
        assert 0 == await job.finish()
    assert 1 == job.output.count("waiting up to")
