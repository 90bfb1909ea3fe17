"""Facts about the relay with delays that benchmarks use."""

import asyncio
import math
from dataclasses import replace
from itertools import islice, pairwise

import pytest

from tests.integration.relay_server.waiting import eventually
from tests.support.network.delayed_relay import AZURE, AZURE_TAIL, DelayProfile, delayed
from tests.support.network.raw_websocket import CLOSE, PING, PONG, TEXT, Frame


async def test_delays_slow_bytes_down_and_keep_their_order(start_relay):
    """Each lane takes its time one way, and what was sent first arrives first."""
    relay = await start_relay(make=delayed(DelayProfile(lane=0.03, handshake_round_trips=1, authorization=0.01)))
    loop = asyncio.get_running_loop()
    start = loop.time()
    control = await relay.listen()
    assert loop.time() - start >= 4 * 0.03 + 0.01
    sender, listener = await relay.pair(control)
    start = loop.time()
    for number in range(50):
        await sender.send(TEXT, b"%d" % number)
    assert [b"%d" % number for number in range(50)] == [(await listener.read_message())[1] for _ in range(50)]
    assert 2 * 0.03 <= loop.time() - start
    await sender.send_close(1000, "bye")
    assert "bye" == (await listener.read_frame()).reason
    await listener.send_close(1000)
    assert CLOSE == (await sender.read_frame()).opcode
    assert b"" == await sender.read_until_end()


async def test_the_azure_profile_has_the_published_figures():
    """30 ms one way, 10 ms for a signature, 50 ms for matchmaking."""
    assert DelayProfile(lane=0.03, authorization=0.01, matchmaking=0.05) == AZURE


async def test_a_slow_connect_is_held_and_then_relayed(start_relay):
    """The sender gets its 101 after the time for which the profile holds it."""
    relay = await start_relay(make=delayed(DelayProfile(slow=1.0, slow_range=(0.05, 0.05))))
    control = await relay.listen()
    start = asyncio.get_running_loop().time()
    await relay.pair(control)
    assert 0.05 <= asyncio.get_running_loop().time() - start


@pytest.mark.parametrize("tail", [DelayProfile(hanging=1.0), DelayProfile(slow=1.0)])
async def test_a_connect_held_beyond_the_time_limit_is_a_timeout(start_relay, tail):
    """The sender gets the status of a listener that does not come, and the listener was never offered the sender."""
    relay = await start_relay(limits={"accept_timeout": 0.05}, make=delayed(tail))
    control = await relay.listen()
    assert 408 == (await (await relay.start_connect()).answer()).status
    await control.send(PING, b"?")
    assert Frame(PONG, b"?") == await control.read_frame()


async def test_a_second_connect_passes_one_that_hangs(start_relay):
    """A connect that hangs holds up no later one, and is forgotten when its sender gives up."""
    relay = await start_relay(make=delayed(DelayProfile(hanging=0.5, seed=2)))  # holds the second one of six
    control = await relay.listen()
    await relay.pair(control)
    hanging = await relay.start_connect()
    await eventually(lambda: relay.server.metrics().pending_senders == 1)
    await relay.pair(control)
    hanging.abort()
    await eventually(lambda: relay.server.metrics().pending_senders == 0)


@pytest.mark.parametrize("tail", [DelayProfile(hanging=1.0), DelayProfile(slow=1.0, slow_range=(3600, 3600))])
async def test_a_stop_does_not_wait_for_a_held_connect(start_relay, tail):
    """Its sender gets a 503."""
    relay = await start_relay(make=delayed(tail))
    await relay.listen()
    sender = await relay.start_connect()
    await eventually(lambda: relay.server.metrics().pending_senders == 1)
    stopping = asyncio.get_running_loop().create_task(relay.server.stop())
    assert 503 == (await sender.answer()).status
    await sender.close()
    await stopping


def test_the_tail_has_its_shares_and_repeats():
    """Of 10000 connects, 5% are held for 3 to 7 s and 1% forever; a second run holds the same ones."""
    tail = AZURE_TAIL
    holds, again = (list(islice(tail.holds(), 10_000)) for _ in range(2))
    slow = [hold for hold in holds if 0 < hold < math.inf]
    assert holds == again
    assert (0.05, 0.01) == (round(len(slow) / len(holds), 2), round(holds.count(math.inf) / len(holds), 2))
    assert (3.0, 7.0) == (pytest.approx(min(slow), abs=0.1), pytest.approx(max(slow), abs=0.1))


def test_a_held_connect_says_nothing_about_the_next():
    """After a held connect, the next one is held as often as any."""
    holds = list(islice(DelayProfile(slow=0.3, hanging=0.2).holds(), 10_000))
    after = [following for hold, following in pairwise(holds) if hold]
    assert 0.5 == pytest.approx(sum(map(bool, after)) / len(after), abs=0.02)


def test_only_the_tail_holds_connects():
    """The tail adds held connects to `azure`, which has none, and changes nothing else of it."""
    assert not any(islice(AZURE.holds(), 1000))
    assert AZURE == replace(AZURE_TAIL, slow=0.0, hanging=0.0)
