"""Seeded schedules for the bad network."""

import random

from relay_client.demo.chaos import ChaosProxy, main

__all__ = ["CutSchedule"]

HANDSHAKE = 6_000
"""Bytes within which TLS, the upgrade, the inner TLS and the first frames lie, in either direction."""
BULK = 400_000


class CutSchedule:
    """Cuts every later connection after a random number of bytes: half of them while it is being set up.

    Args:
        chaos: The network.
        seed: Two schedules with the same seed cut at the same bytes.
    """

    def __init__(self, chaos: ChaosProxy, *, seed: int) -> None:
        self._chaos = chaos
        self._random = random.Random(seed)
        chaos.on_connection = self._next

    def stop(self) -> None:
        """Leave later connections alone, and end those that would still be cut."""
        self._chaos.on_connection = lambda: None
        self._chaos.up.cut_after = self._chaos.down.cut_after = None
        self._chaos.cut()

    def _next(self) -> None:
        size = self._random.randrange(HANDSHAKE if self._random.random() < 0.5 else BULK)
        upwards = self._random.random() < 0.5
        self._chaos.up.cut_after = size if upwards else None
        self._chaos.down.cut_after = None if upwards else size


if __name__ == "__main__":
    import sys

    sys.exit(main(sys.argv[1:]))
