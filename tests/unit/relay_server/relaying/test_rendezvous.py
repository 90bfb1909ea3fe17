import pytest

from relay_server.protocol.http import RequestHead
from relay_server.protocol.refusals import shutting_down
from relay_server.protocol.requests import HybridRequest
from relay_server.relaying.rendezvous import Rendezvous

GUID = "7b17ae72-fddb-4c9b-a8f9-94c2654aa0fe"
REQUEST = HybridRequest.parse(RequestHead("GET", f"/$hc/x?sb-hc-id={GUID}", ()))


@pytest.fixture
async def rendezvous():
    return Rendezvous(new_secret=lambda: "5ec7e7")


async def test_a_sender_is_found_once_by_id_and_secret(rendezvous):
    """Any spelling of the id counts, and taking a sender forgets it."""
    pending = rendezvous.open(REQUEST, None)
    assert f"{GUID}_G0" == pending.id
    assert pending is rendezvous.take(f"{GUID.upper()}_G0_G7", "5ec7e7")
    assert rendezvous.take(pending.id, "5ec7e7") is None


@pytest.mark.parametrize("secret", [None, "", "5ec7e", "5EC7E7", "\N{SNOWMAN}"])
async def test_a_wrong_secret_finds_nobody_and_spoils_nothing(rendezvous, secret):
    """The sender continues to wait for whoever has the right one."""
    pending = rendezvous.open(REQUEST, None)
    assert rendezvous.take(pending.id, secret) is None
    assert pending is rendezvous.take(pending.id, "5ec7e7")


@pytest.mark.parametrize("identity", [None, "", "123456", "00000000-0000-0000-0000-000000000000"])
async def test_an_unknown_id_finds_nobody(rendezvous, identity):
    """Ids that are invalid, or nobody's, do not raise an error."""
    rendezvous.open(REQUEST, None)
    assert rendezvous.take(identity, "5ec7e7") is None


async def test_forgetting_a_taken_sender_does_not_forget_its_successor(rendezvous):
    """A sender that ends late cannot take another one's place."""
    first = rendezvous.open(REQUEST, None)
    rendezvous.take(first.id, "5ec7e7")
    second = rendezvous.open(REQUEST, None)
    rendezvous.forget(first)
    assert 1 == len(rendezvous)
    rendezvous.forget(second)
    assert 0 == len(rendezvous)


async def test_everybody_can_be_refused_at_once(rendezvous):
    """Each waiting sender gets the refusal, and nobody waits any more."""
    waiting = [rendezvous.open(REQUEST, None) for _ in range(2)]
    assert waiting[0].id != waiting[1].id
    refusal = shutting_down()
    rendezvous.refuse_all(refusal)
    assert [refusal, refusal] == [pending.outcome.result() for pending in waiting]
    assert 0 == len(rendezvous)


async def test_repr_shows_no_secret(rendezvous):
    """A waiting sender's representation does not let anybody accept it."""
    assert "5ec7e7" not in repr(rendezvous.open(REQUEST, None))
