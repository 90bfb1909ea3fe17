"""Facts about attachments to targets."""

import asyncio
import time

import pytest

from relay_agent.agent import attachments as module
from relay_agent.agent.attachments import Attachments
from relay_agent.agent.port_targets import PortTarget
from relay_core.errors import ConnectionLost
from relay_core.layers.stop_observer import ObservedStop, Place
from relay_core.net.tasks import TaskSet
from tests.support.machine.deadline import DEADLINE


class Driver:
    """A client's session, as far as Attachments uses it."""

    def __init__(self, *, attached=True):
        self.session = self
        self.unacknowledged = 0
        self.attached = attached
        self.over = asyncio.Event()
        self.reasons = []

    def abort(self, text):
        self.reasons.append(text)
        self.over.set()


DEBUGGEE = PortTarget(5678, 1, dap_only=True)
FORWARD = PortTarget(6006, 1)


async def test_a_second_client_learns_the_holder():
    """The second one's refusal names the first and the time; the first one may have more connections."""
    changes = []
    attachments = Attachments(lambda: changes.append(1))
    first, second = Driver(), Driver()
    async with attachments.holding(DEBUGGEE, first, "ann@a"), attachments.holding(DEBUGGEE, first, "ann@a"):
        assert attachments.refusal(DEBUGGEE, first, "ann@a") == ""
        assert attachments.refusal(DEBUGGEE, second, "bob@b") == f"held by ann@a (since {time.strftime('%H:%M')})"
        assert attachments.attachment(DEBUGGEE).user == "ann@a"
        assert attachments.attachment(DEBUGGEE).since <= time.time()
        with pytest.raises(ConnectionLost, match="held by ann@a"):
            async with attachments.holding(DEBUGGEE, second, "bob@b"):
                pass
    assert attachments.refusal(DEBUGGEE, second, "bob@b") == ""
    assert attachments.attachment(DEBUGGEE) is None
    assert len(changes) == 2


async def test_forwards_are_shared():
    """A port that is not a debug target serves any number of clients."""
    attachments = Attachments(lambda: None)
    async with attachments.holding(FORWARD, Driver(), "ann@a"):
        assert attachments.refusal(FORWARD, Driver(), "bob@b") == ""
        assert attachments.attachment(FORWARD) is None
        async with attachments.holding(FORWARD, Driver(), "bob@b"):
            pass


async def test_a_client_that_died_makes_room_for_its_user():
    """A new client of the same user takes over from one without a transport; a client of another user does not."""
    attachments = Attachments(lambda: None)
    dead, alive = Driver(attached=False), Driver()
    freed = asyncio.Event()

    async def hold():
        async with attachments.holding(DEBUGGEE, dead, "ann@a"):
            await dead.over.wait()
        freed.set()

    holding = asyncio.ensure_future(hold())
    await asyncio.sleep(0)
    assert attachments.refusal(DEBUGGEE, alive, "bob@b").startswith("held by ann@a")
    assert dead.reasons == []
    assert attachments.refusal(DEBUGGEE, alive, "ann@a") == ""
    assert attachments.refusal(DEBUGGEE, alive, "ann@a", is_release=True) == ""
    assert dead.reasons == ["the user reconnected with another client", "released by ann@a"]
    async with attachments.holding(DEBUGGEE, alive, "ann@a"):
        assert freed.is_set()
        assert attachments.attachment(DEBUGGEE).user == "ann@a"
    await holding


async def test_a_target_without_a_debugger_has_ended():
    """Waiting for the end takes no time if nobody is connected, and ends with the last connection."""
    attachments = Attachments(lambda: None)
    await attachments.until_ended(DEBUGGEE)
    async with attachments.holding(DEBUGGEE, Driver(), "ann@a"):
        waiting = asyncio.ensure_future(attachments.until_ended(DEBUGGEE))
        await asyncio.sleep(0)
        assert not waiting.done()
        assert [DEBUGGEE] == list(attachments._holders)
    await waiting


async def test_a_debugger_that_has_ended_is_not_waited_for():
    """Waiting ends when all debuggers have ended and the client has everything, though it is still connected."""
    attachments, driver = Attachments(lambda: None), Driver()
    async with (
        attachments.holding(DEBUGGEE, driver, "ann@a") as parent,
        attachments.holding(DEBUGGEE, driver, "ann@a") as child,
    ):
        driver.session.unacknowledged = 1
        waiting = asyncio.ensure_future(attachments.until_ended(DEBUGGEE))
        for stream in (child, child, parent):
            await asyncio.sleep(0)
            assert not waiting.done()
            stream.ended()
        await asyncio.sleep(0)
        assert not waiting.done()
        driver.session.unacknowledged = 0
        await asyncio.wait_for(waiting, DEADLINE)


async def test_an_announcement_that_fails_leaves_no_holder():
    """If nobody can be informed of a new holder, the target is free again."""

    def fail():
        raise ValueError("too long")

    attachments = Attachments(fail)
    with pytest.raises(ValueError, match="too long"):
        async with attachments.holding(DEBUGGEE, Driver(), "ann@a"):
            pass
    assert attachments.attachment(DEBUGGEE) is None


async def test_a_stop_is_announced_once_it_lasts(monkeypatch: pytest.MonkeyPatch):
    """A stop is part of the attachment at once; steps are announced together, after the last one."""
    monkeypatch.setattr(module, "ANNOUNCE_DELAY", 0.05)
    announced = asyncio.Queue()
    attachments = Attachments(lambda: announced.put_nowait(attachments.attachment(DEBUGGEE)))
    async with attachments.holding(DEBUGGEE, Driver(), "ann@a") as stream:
        assert announced.get_nowait().is_stopped is False
        for line in range(41, 44):
            stream.stopped(None)
            stream.stopped(ObservedStop("step", 1))
            stream.stopped(ObservedStop("step", 1, Place(r"C:\src\train.py", line)))
        assert attachments.attachment(DEBUGGEE).stopped_at == "train.py:43"
        assert announced.empty()
        stop = await asyncio.wait_for(announced.get(), DEADLINE)
        assert (stop.is_stopped, stop.stopped_at) == (True, "train.py:43")
        assert stop.resumed_since is None
        stream.stopped(None)
        resumed = await asyncio.wait_for(announced.get(), DEADLINE)
        assert resumed.is_stopped is False
        assert stop.stopped_since <= resumed.resumed_since <= time.time()


async def test_a_target_learns_when_its_process_has_resumed():
    """It is the end of the debug session, if the process was stopped until then."""
    found = []

    class Detached(PortTarget):
        def detached(self, resumed_since):
            found.append(resumed_since)

    attachments, began = Attachments(lambda: None), time.time()
    for stop in (None, ObservedStop("step", 1)):
        async with attachments.holding(Detached(5678, 5678, dap_only=True), Driver(), "ann@a") as stream:
            stream.stopped(stop)
    assert found[0] is None
    assert began <= found[1] <= time.time()


class StoppedTarget(PortTarget):
    """A target that knows where it is stopped."""

    async def stopped_at(self):
        return Place("/src/train.py", 7)


async def test_the_place_of_a_stop_comes_from_the_process(monkeypatch: pytest.MonkeyPatch):
    """If a stop lasts and no editor has requested its stack, the process is asked; the place is announced."""
    monkeypatch.setattr(module, "ANNOUNCE_DELAY", 0.05)
    announced, target = asyncio.Queue(), StoppedTarget(5678, 1, dap_only=True)
    async with TaskSet() as tasks:
        attachments = Attachments(lambda: announced.put_nowait(attachments.attachment(target)), tasks)
        async with attachments.holding(target, Driver(), "ann@a") as stream:
            stream.stopped(ObservedStop("breakpoint", 1))
            found = [await asyncio.wait_for(announced.get(), DEADLINE) for _ in range(3)]
            assert ["", "", "train.py:7"] == [attachment.stopped_at for attachment in found]


async def test_the_question_for_a_place_ends_with_its_owner(monkeypatch: pytest.MonkeyPatch):
    """The tasks that ask processes are in the given set, which is empty at first and cancels them at its end."""
    monkeypatch.setattr(module, "ANNOUNCE_DELAY", 0.05)
    asked, ended = asyncio.Event(), asyncio.Event()

    class Silent(PortTarget):
        async def stopped_at(self):
            asked.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()

    async with TaskSet() as tasks:
        attachments = Attachments(lambda: None, tasks)
        async with attachments.holding(Silent(5678, 1, dap_only=True), Driver(), "ann@a") as stream:
            stream.stopped(ObservedStop("breakpoint", 1))
            await asyncio.wait_for(asked.wait(), DEADLINE)
    assert ended.is_set()


async def test_the_latest_stop_is_announced():
    """Of a process and its child, the latest stop counts; the end of a session ends its stop."""
    attachments, driver = Attachments(lambda: None), Driver()
    async with (
        attachments.holding(DEBUGGEE, driver, "ann@a") as parent,
        attachments.holding(DEBUGGEE, driver, "ann@a") as child,
    ):
        parent.stopped(ObservedStop("breakpoint", 1, Place("/a/train.py", 1)))
        child.stopped(ObservedStop("breakpoint", 1, Place("/a/data.py", 2)))
        assert attachments.attachment(DEBUGGEE).stopped_at == "data.py:2"
        child.ended()
        assert attachments.attachment(DEBUGGEE).stopped_at == "train.py:1"
