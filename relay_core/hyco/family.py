"""Families: several hybrid connections with one name, for more agents than one hybrid connection accepts.

    alice                 one hybrid connection
    alice:4               the family of alice, alice-1, alice-2 and alice-3

Azure accepts 25 listeners on a hybrid connection. A listener uses any hybrid connection of its family that has room;
a sender uses all of them. Invalid: `alice:0`, `alice:x`, `:4`. `:` cannot be part of a hybrid connection's name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from relay_core.errors import ConfigurationError, HybridConnectionNotFound, RelayDebugError, TooManyListeners
from relay_core.hyco.address import Endpoint

MAX_SIZE = 200
"""Maximum number of hybrid connections in a family; with more of them, the listeners could exceed Azure's limit of
5,000 connections per namespace."""


class FamilyName(NamedTuple):
    """The value of `--hc` or `EntityPath`."""

    path: str
    size: int | None
    """Number of hybrid connections, or None if it is not given."""

    @classmethod
    def parse(cls, text: str) -> FamilyName:
        """Parse `NAME` or `NAME:SIZE`.

        Raises:
            ConfigurationError: The name is empty, or the size is not a number from 1 to `MAX_SIZE`.
        """
        name, separator, digits = text.partition(":")
        path = name.strip("/")
        if not separator:
            return cls(path, None)
        is_number = digits.isascii() and digits.isdigit() and len(digits) <= len(str(MAX_SIZE))
        if not path or not is_number or not 1 <= int(digits) <= MAX_SIZE:
            raise ConfigurationError(
                f"invalid family of hybrid connections: '{text}'",
                hint=f"use the format NAME:SIZE with a size from 1 to {MAX_SIZE}, such as alice:8",
            )
        return cls(path, int(digits))


class SiblingOrder:
    """The order in which a listener tries the hybrid connections of its family.

    It begins with the hybrid connection that accepted the listener before, so that the listener's clients find it there
    after an interruption. A new listener begins at random: listeners that start together then spread over the family,
    instead of filling one hybrid connection after another.

    Args:
        size: Number of hybrid connections.
        random: Returns a float in [0, 1).
    """

    def __init__(self, size: int, random: Callable[[], float]) -> None:
        self._size = size
        self._first = int(random() * size)

    def indexes(self) -> list[int]:
        """Return the numbers of all hybrid connections, starting with the one to try first."""
        return [(self._first + offset) % self._size for offset in range(self._size)]

    def accepted(self, index: int) -> None:
        """Record that a hybrid connection has accepted the listener."""
        self._first = index


def no_sibling_left(refusals: Sequence[RelayDebugError], endpoint: Endpoint) -> RelayDebugError:
    """Return the error for a listener that no hybrid connection of its family accepts.

    Args:
        refusals: The reasons, one for each hybrid connection; each is TooManyListeners or HybridConnectionNotFound.
        endpoint: The family.
    """
    existing = [error for error in refusals if not isinstance(error, HybridConnectionNotFound)]
    if len(refusals) == 1 or not existing:
        return refusals[0]
    return TooManyListeners(
        f"all {len(existing)} hybrid connections of the family '{endpoint.name}' have as many listeners as the relay "
        "allows (25 each in Azure)",
        hint="stop jobs that no longer need debugging, or enlarge the family: infra/create_relay.sh "
        f"--hc {endpoint.name} --nodes NUMBER",
    )
