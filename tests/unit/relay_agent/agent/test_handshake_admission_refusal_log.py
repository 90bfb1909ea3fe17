"""Facts about the log of senders that could not be served."""

import asyncio
import logging

import pytest

from relay_agent.agent import handshake_admission
from relay_agent.agent.handshake_admission import MAX_REASONS, RefusalLog


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture):
    """Return the lines from INFO on."""
    caplog.set_level(logging.INFO)
    return lambda: [record.getMessage() for record in caplog.records if record.levelno >= logging.INFO]


async def test_a_flood_is_one_line_and_a_number(lines) -> None:
    """A thousand senders with one reason are logged as the first one and the number of the others."""
    log = RefusalLog()
    for _ in range(1000):
        log.add(logging.INFO, "the connection was lost")
    assert ["cannot serve a client: the connection was lost"] == lines()
    log.close()
    assert ["999 further connection attempts failed"] == lines()[1:]


async def test_reasons_that_a_sender_makes_up(lines) -> None:
    """Only the first few different reasons are logged."""
    log = RefusalLog()
    for number in range(100):
        log.add(logging.WARNING, f"reason {number}")
    assert [f"cannot serve a client: reason {number}" for number in range(MAX_REASONS)] == lines()
    log.close()


async def test_a_flood_that_continues(lines, monkeypatch: pytest.MonkeyPatch) -> None:
    """The number is logged after each period; a reason is logged again after a period without any sender."""
    monkeypatch.setattr(handshake_admission, "PERIOD", 0.05)
    log = RefusalLog()
    for _ in range(3):
        log.add(logging.INFO, "lost")
    while len(lines()) < 2:
        await asyncio.sleep(0.01)
    assert ["cannot serve a client: lost", "2 further connection attempts failed"] == lines()
    while log._logged:
        await asyncio.sleep(0.01)
    log.add(logging.INFO, "lost")
    assert "cannot serve a client: lost" == lines()[-1]
    log.close()
