"""Facts about the verb `env`."""

import asyncio
import sys
from pathlib import Path

import pytest

from relay_client.agents.tunnels import Tunnels
from relay_client.verbs.env import Env
from relay_client.verbs.verb import Session
from relay_core.errors import NoListener
from tests.support.jobs.running import running_job
from tests.support.machine.ports import consecutive_ports
from tests.support.network.relay import LocalRelay
from tests.support.network.tunnel import QUICK

SCRIPT = """\
import os
import threading
from pathlib import Path

os.environ["EPOCH"] = "7"
(Path(__file__).parent / f"ready-{os.environ['RELAY_RANK']}").touch()
threading.Event().wait()
"""
LAUNCHER = f'for rank in 0 1; do RELAY_RANK=$rank {sys.executable} "$1" & done; wait\n'


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the node's agent needs Linux")
async def test_ranks_are_compared(relay: LocalRelay, tmp_path: Path) -> None:
    """The variables are those of the job now, without secrets; what differs comes first, and so does a missing rank."""
    script, launcher, port = tmp_path / "train.py", tmp_path / "launcher.sh", consecutive_ports(3)[0]
    script.write_text(SCRIPT)
    launcher.write_text(LAUNCHER)
    options = ("--port", str(port), "--debug-ranks", "none")
    variables = {"HF_TOKEN": "hf_123", "RELAY_WORLD_SIZE": "3"}
    async with (
        running_job(relay, script, *options, launcher=["sh", str(launcher)], **variables) as job,
        Tunnels(relay.endpoint, relay.sender, relay.tls, settings=QUICK, tunnel_key=None) as tunnels,
    ):
        while not all((tmp_path / f"ready-{rank}").exists() for rank in range(2)):
            await asyncio.sleep(0.05)
        await job.line("listening on")
        session = Session(tunnels)
        lines = (await session.perform(Env("all"))).text.splitlines()
        one = await session.perform(Env("1"))
        with pytest.raises(NoListener, match="no process has rank 9. hint: use a registered rank: 0-1"):
            await session.perform(Env("9"))
    first = [line for line in lines if line.startswith("rank ")]
    assert (first[0], first) == ("rank 2: not found", lines[: len(first)])
    assert {"rank 0: RELAY_RANK=0", "rank 1: RELAY_RANK=1"} <= set(first)
    assert {"EPOCH=7", "HF_TOKEN=***", "RELAY_WORLD_SIZE=3"} <= set(lines)
    assert "RELAY_RANK=1" in one.text.splitlines()
    (process,) = one.data["processes"]
    assert (1, port + 1, "***", 0) == (
        process["rank"],
        process["port"],
        process["variables"]["HF_TOKEN"],
        process["left_out"],
    )
