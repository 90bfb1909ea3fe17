"""Facts about the selection of the listeners that are offered a sender."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from relay_server.config.model import HybridConnection
from relay_server.protocol.refusals import Refusal
from relay_server.relaying.matchmaking import select_listeners

A = HybridConnection("a")


@dataclass(eq=False)
class Listener:
    id: str
    hybrid_connection: HybridConnection = A


def unchanged(_listeners: list[Listener]) -> None:
    """Keep the order."""


def choose(number: int) -> Callable[[list[Listener]], None]:
    """Put the listener with this number first."""
    return lambda listeners: listeners.insert(0, listeners.pop(number))


def test_no_listeners_and_none_that_is_allowed():
    """Both are 404 and differ in their text."""
    with pytest.raises(Refusal, match="no listeners connected"):
        select_listeners([], shuffle=unchanged)
    with pytest.raises(Refusal, match="AllowedListeners/DisallowedListeners"):
        select_listeners([Listener("x")], shuffle=unchanged, allowed={"y"})


def test_allowed_and_disallowed_are_compared_without_case():
    """Ids are GUIDs, and clients write them in either case."""
    one, two = present = Listener("ID-1"), Listener("id-2")
    assert [one] == select_listeners(present, shuffle=unchanged, allowed={"id-1"})
    assert [two] == select_listeners(present, shuffle=unchanged, disallowed={"id-1"})
    assert [two] == select_listeners(present, shuffle=unchanged, allowed={"id-1", "id-2"}, disallowed={"id-1"})


def test_every_listener_may_come_first():
    """The order is random: each choice puts another listener first, and all of them stay candidates."""
    listeners = [Listener(str(number)) for number in range(3)]
    orders = [select_listeners(listeners, shuffle=choose(number)) for number in range(3)]
    assert listeners == [order[0] for order in orders]
    assert all(set(order) == set(listeners) for order in orders)


def test_the_newest_channel_of_one_id_comes_first():
    """An agent that came back is reached on its new channel; the old one is only tried after all others."""
    old, other, new = Listener("same"), Listener("other"), Listener("SAME")
    assert [new, other, old] == select_listeners([old, other, new], shuffle=unchanged)
