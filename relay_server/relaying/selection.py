"""Selection of the listeners that are offered a sender; independent of sockets."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TypeVar

from relay_server.protocol.refusals import no_listeners, no_matching_listeners
from relay_server.relaying.registry import Listener

__all__ = ["select_listeners"]

L = TypeVar("L", bound=Listener)


def select_listeners(
    present: Sequence[L],
    *,
    choose: Callable[[int], int],
    allowed: Collection[str] = (),
    disallowed: Collection[str] = (),
) -> list[L]:
    """Return the listeners to try, in random order; of those with the same id, the newest comes first.

    Args:
        present: The listeners of the requested hybrid connection, the oldest first.
        choose: Returns a random index below its argument.
        allowed: Lower-case ids; if not empty, only these listeners are returned.
        disallowed: Lower-case ids of listeners that are not returned.

    Raises:
        Refusal: No listener is present, or none is allowed.
    """
    if not present:
        raise no_listeners()
    wanted = [
        listener
        for listener in present
        if listener.id.lower() not in disallowed and (not allowed or listener.id.lower() in allowed)
    ]
    if not wanted:
        raise no_matching_listeners()
    # An agent that lost its network reconnects with the same id while its old channel still appears to be alive.
    newest = {listener.id.lower(): listener for listener in wanted}
    older = [listener for listener in reversed(wanted) if newest[listener.id.lower()] is not listener]
    return [*_shuffled(list(newest.values()), choose), *older]


def _shuffled(items: list[L], choose: Callable[[int], int]) -> list[L]:
    shuffled = []
    while items:
        shuffled.append(items.pop(choose(len(items))))
    return shuffled
