"""Programs are killed at random under two debug sessions that step all the time, run by `make soak`.

SOAK_MINUTES is the duration (15), SOAK_SEED chooses the victims.
"""

import asyncio
import os
import random
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.support.systems.programs_to_kill import fleet, kill_and_look, look_for_remains, stepping, victims

MINUTES = float(os.environ.get("SOAK_MINUTES", "15"))
SEED = int(os.environ.get("SOAK_SEED", "1"))
PAUSE = 3.0
"""Seconds up to which programs run before the next one is killed: long enough for a debugger to be in any state."""

pytestmark = [pytest.mark.soak, pytest.mark.timeout(60 * MINUTES + 600)]


async def test_programs_are_killed_at_random(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """After each kill both ranks step on, in the same session or in a new one, and at the end nothing is left."""
    chance, kills = random.Random(SEED), Counter[str]()
    ending = time.monotonic() + 60 * MINUTES
    async with fleet(tmp_path) as running:
        async with stepping(running):
            while time.monotonic() < ending:
                await asyncio.sleep(chance.uniform(0, PAUSE))
                victim = chance.choice(victims())
                line = await kill_and_look(running, victim)
                kills[victim] += 1
                with capfd.disabled():
                    print(f"{time.strftime('%H:%M:%S')} {line}")
        steps = sum(stepper.steps for stepper in running.steppers)
        remains = await look_for_remains(running)
    with capfd.disabled():
        print(f"seed {SEED}, {MINUTES:g} minutes: {kills.total()} kills {dict(kills)}, {steps} steps; {remains}")
