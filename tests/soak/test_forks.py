"""A job forks all the time while it is debugged and asked, run by `make soak`.

SOAK_FORKS is the number of forks (10,000). Each round is a new job, because only the first attach imports debugpy.
"""

import os
import time
from pathlib import Path

import pytest

from tests.support.jobs.forking_job import forks_beside_requests
from tests.support.network.relay import LocalRelay

FORKS = int(os.environ.get("SOAK_FORKS", "10000"))

pytestmark = [pytest.mark.soak, pytest.mark.timeout(3600)]


async def test_no_child_hangs(relay: LocalRelay, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Every child exits, in every round."""
    forks, rounds, longest = 0, 0, 0.0
    hung: list[str] = []
    while forks < FORKS:
        rounds += 1
        directory = tmp_path / str(rounds)
        directory.mkdir()
        found = await forks_beside_requests(relay, directory, sessions=2, forks=10)
        forks, longest = forks + found.forks, max(longest, found.longest)
        hung += found.hung
        with capfd.disabled():
            print(
                f"{time.strftime('%H:%M:%S')} {rounds} jobs, {forks} forks, {len(hung)} hung, longest {longest:.3f} s"
            )
    assert [] == hung
