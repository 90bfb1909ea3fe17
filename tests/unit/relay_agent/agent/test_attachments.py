"""Facts about who holds a target."""

import asyncio
import time

import pytest

from relay_agent.agent.attachments import Holders
from relay_agent.agent.port_targets import PortTarget
from relay_core.errors import ConnectionLost


class Driver:
    """What Holders know of a client's session."""

    def __init__(self, *, attached=True):
        self.session = self
        self.attached = attached
        self.over = asyncio.Event()
        self.reasons = []

    def abort(self, text):
        self.reasons.append(text)
        self.over.set()


DEBUGGEE = PortTarget(5678, 1, dap_only=True)
FORWARD = PortTarget(6006, 1)


async def test_a_second_client_is_told_who_holds():
    """The second one's refusal names the first and the time; the first one may have more connections."""
    changes = []
    holders = Holders(lambda: changes.append(1))
    first, second = Driver(), Driver()
    async with holders.holding(DEBUGGEE, first, "ann@a"), holders.holding(DEBUGGEE, first, "ann@a"):
        assert holders.refusal(DEBUGGEE, first, "ann@a") == ""
        assert holders.refusal(DEBUGGEE, second, "bob@b") == f"held by ann@a since {time.strftime('%H:%M')}"
        assert holders.attachment(DEBUGGEE).user == "ann@a"
        assert holders.attachment(DEBUGGEE).since <= time.time()
        with pytest.raises(ConnectionLost, match="held by ann@a"):
            async with holders.holding(DEBUGGEE, second, "bob@b"):
                pass
    assert holders.refusal(DEBUGGEE, second, "bob@b") == ""
    assert holders.attachment(DEBUGGEE) is None
    assert len(changes) == 2


async def test_forwards_are_shared():
    """A port that is no debugger serves any number of clients."""
    holders = Holders(lambda: None)
    async with holders.holding(FORWARD, Driver(), "ann@a"):
        assert holders.refusal(FORWARD, Driver(), "bob@b") == ""
        assert holders.attachment(FORWARD) is None
        async with holders.holding(FORWARD, Driver(), "bob@b"):
            pass


async def test_a_client_that_died_makes_room_for_its_user():
    """The same user's next client takes over from one that is away; another user's does not."""
    holders = Holders(lambda: None)
    dead, alive = Driver(attached=False), Driver()
    freed = asyncio.Event()

    async def hold():
        async with holders.holding(DEBUGGEE, dead, "ann@a"):
            await dead.over.wait()
        freed.set()

    holding = asyncio.ensure_future(hold())
    await asyncio.sleep(0)
    assert holders.refusal(DEBUGGEE, alive, "bob@b").startswith("held by ann@a")
    assert dead.reasons == []
    assert holders.refusal(DEBUGGEE, alive, "ann@a") == ""
    assert dead.reasons == ["its user came back with another client"]
    async with holders.holding(DEBUGGEE, alive, "ann@a"):
        assert freed.is_set()
        assert holders.attachment(DEBUGGEE).user == "ann@a"
    await holding


async def test_until_free():
    """Waiting ends with the last connection, and at once where there is none."""
    holders = Holders(lambda: None)
    await holders.until_free(DEBUGGEE)
    async with holders.holding(DEBUGGEE, Driver(), "ann@a"):
        waiting = asyncio.ensure_future(holders.until_free(DEBUGGEE))
        await asyncio.sleep(0)
        assert not waiting.done()
        assert repr(holders) == "<Holders [5678]>"
    await waiting
