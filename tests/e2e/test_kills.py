"""Each program is killed under two debug sessions that step all the time; the long run is in tests/soak."""

from pathlib import Path

import pytest

from tests.support.systems.programs_to_kill import fleet, kill_and_look, look_for_remains, stepping

pytestmark = pytest.mark.e2e


async def test_every_program_is_killed_once(tmp_path: Path) -> None:
    """After each kill both ranks step on, in the same session or in a new one, and at the end nothing is left."""
    async with fleet(tmp_path) as running:
        async with stepping(running):
            for victim in ("rank 0", "agent", "relay", "adapter 1", "client"):
                print(await kill_and_look(running, victim))
        print(await look_for_remains(running))
