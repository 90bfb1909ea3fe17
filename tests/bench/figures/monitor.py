"""What `--debug-monitor` costs a job that nobody debugs: the time of its training steps, and CPU of the node's agent.

Two jobs with agents of their own train alternately; one of them is monitored at the shortest interval, 0.5 s instead of
the default of 10 s. Each turn is compared with the other job's turn of the same round.
"""

from __future__ import annotations

import contextlib
import statistics
import sys
import time
from collections.abc import AsyncIterator

import psutil

from relay_agent.settings.model import DEFAULT_MONITOR
from tests.bench.programs import Conversation
from tests.bench.report import Limit, Row
from tests.bench.stage import HC, OLDER_HCS, Stage
from tests.support.machine.ports import free_port

__all__ = ["monitor"]

INTERVAL = 0.5
SETTLING = 3.0
"""Seconds in which both agents connect to the relay."""
MOST = 1.01
"""How much longer a step may take."""
TURN = 0.5
"""Seconds; one sample."""


async def monitor(stage: Stage, *, quick: bool) -> list[Row]:
    """The median of the ratios of both jobs, and the agents' CPU meanwhile."""
    rounds = 20 if quick else 120
    async with _job(stage, HC) as plain, _job(stage, OLDER_HCS[0], "--debug-monitor", f"{INTERVAL}s") as monitored:
        agents = [_agent_of(job) for job in (plain, monitored)]
        await plain.ask(SETTLING)
        before, started = [_cpu(agent) for agent in agents], time.monotonic()
        steps = []
        for number in range(rounds):
            turns = {}
            for name in ("plain", "monitored") if number % 2 else ("monitored", "plain"):
                turns[name] = await (plain if name == "plain" else monitored).ask(TURN)
            steps.append(turns)
        elapsed = time.monotonic() - started
        alone, with_monitor = (_cpu(agent) - cpu for agent, cpu in zip(agents, before, strict=True))
    each = (with_monitor - alone) / (elapsed / INTERVAL)
    base = statistics.median(turns["plain"] for turns in steps)
    ratio = statistics.median(turns["monitored"] / turns["plain"] for turns in steps)
    names = ("not monitored", "monitored")
    return [
        Row(
            "monitor",
            f"training step, a sample every {INTERVAL} s",
            "ms",
            dict(zip(names, (1000 * base, 1000 * base * ratio), strict=True)),
            limits={"monitored": Limit(MOST, of="ratio")},
            detail={"seconds": steps},
        ),
        Row("monitor", "CPU of the agent for a sample", "ms", {"monitored": 1000 * each}),
        Row(
            "monitor",
            f"of a core, a sample every {DEFAULT_MONITOR:g} s",
            "%",
            {"monitored": 100 * each / DEFAULT_MONITOR},
        ),
    ]


@contextlib.asynccontextmanager
async def _job(stage: Stage, hc: str, *options: str) -> AsyncIterator[Conversation]:
    secrets = ("--connection-string-file", stage.relay.connection_file("agent", hc), "--ca-file", stage.relay.ca_file)
    where = ("--hc", hc, "--port", free_port(), "--debug-ranks", "none", *options)
    program = (sys.executable, "-m", "tests.bench.training")
    async with stage.programs.talking("relay_agent", "run", *where, *secrets, "--", *program) as job:
        await job.receive()
        yield job


def _agent_of(job: Conversation) -> psutil.Process:
    """Return the agent that a job has started, once the process between the two has exited."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        for process in psutil.process_iter(["cmdline"]):
            with contextlib.suppress(psutil.Error):
                started_by = process.environ().get("RELAY_AGENT_STARTER")
                is_agent = "node-agent" in (process.info["cmdline"] or []) and process.ppid() != job.pid
                if is_agent and started_by == str(job.pid):
                    return process
        time.sleep(0.1)
    raise RuntimeError("the job has no agent")


def _cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)
