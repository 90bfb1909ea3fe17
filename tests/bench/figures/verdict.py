"""Time until a client whose tunnels are open has a verdict on a job that hangs, by number of ranks.

The ranks are pretended, four on each of the agents, which are real and share one process. Each reports four process
groups with eight operations each, and a stack of thirty frames. The time that a real rank needs to read its recorder
(20 to 60 ms) is not part of it.
"""

from __future__ import annotations

import json
import statistics
import time

from relay_client.agents.tunnels import Tunnels
from relay_client.hang.examine import collect_replies
from relay_client.hang.output import verdict_as_object, verdict_as_text
from relay_client.hang.reports import read_jobs
from relay_client.hang.verdict import JobVerdict
from relay_core.net.relay_tls import client_tls
from relay_core.records import encode
from tests.bench.pretended_ranks import RANKS_PER_AGENT, access_of, collectives_of
from tests.bench.programs import lines_of
from tests.bench.report import Limit, Row
from tests.bench.stage import Stage

__all__ = ["verdict"]

SIZES = (4, 64)
"""Ranks; Azure takes 25 agents on a hybrid connection."""
MOST = 1.0
"""Seconds for a verdict on the most ranks."""


async def verdict(stage: Stage, *, quick: bool) -> list[Row]:
    """The median of some verdicts for each number of ranks."""
    rows = []
    for ranks in SIZES:
        secrets = (stage.relay.connection_file("agent"), stage.relay.ca_file)
        agents = await stage.programs.python("agents", "tests.bench.pretended_ranks", str(ranks), *secrets)
        await lines_of(agents, lambda text: "listening" in text)
        times = await _times(stage, ranks, 3 if quick else 20)
        await stage.programs.end(agents)
        size = len(json.dumps(encode(collectives_of(0, ranks))))
        rows.append(
            Row(
                "verdict on a job that hangs",
                f"{ranks} ranks, {RANKS_PER_AGENT} on each agent",
                "s",
                {"relay-client hang": statistics.median(times)},
                detail={"seconds": times, "bytes per rank": size},
                limits={"relay-client hang": Limit(MOST)},
            )
        )
    return rows


async def _times(stage: Stage, ranks: int, turns: int) -> list[float]:
    endpoint, credential, tunnel_key = access_of(stage.relay.connection_file("client"))
    times = []
    async with Tunnels(endpoint, credential, client_tls(stage.relay.ca_file), tunnel_key=tunnel_key) as tunnels:
        await tunnels.search.wait_for(
            lambda: True if len(tunnels.roster) * RANKS_PER_AGENT == ranks else None, lambda _why: None
        )
        await collect_replies(tunnels)  # answered after all work that the handshakes have left in either process
        for _ in range(turns):
            started = time.monotonic()
            (job,) = read_jobs(await collect_replies(tunnels))
            text = verdict_as_text(verdict_as_object([JobVerdict.of(job)]))
            times.append(time.monotonic() - started)
            assert f"missing rank {ranks - 1}, which is at loader.py:88 in load_batch" in text, text
    return times
