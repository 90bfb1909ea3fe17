"""Facts about jobs that fork while they are debugged."""

from pathlib import Path

from tests.support.jobs.forking_job import forks_beside_requests
from tests.support.network.relay import LocalRelay


async def test_no_child_hangs(relay: LocalRelay, tmp_path: Path) -> None:
    """Each child ends, though it imports modules, beside a first and a later session and everything else one asks."""
    found = await forks_beside_requests(relay, tmp_path, sessions=2, forks=100)
    assert [] == found.hung, found
