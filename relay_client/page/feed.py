"""What the page shows: the state of relay-client, and the events since it started."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncGenerator

from relay_client.control.codec import encode
from relay_client.control.messages import EVENTS, Event, GetStatus, Subscribe
from relay_client.control.service import ControlService, Subscriber
from relay_core.compat import TIMEOUT_ERRORS, timeout

__all__ = ["MAX_EVENTS", "Feed"]

MAX_EVENTS = 1000
"""Maximum number of events kept for a page that is opened later."""
MIN_INTERVAL = 1.0
"""Minimum number of seconds between two updates of a page; changes in between are combined, because a job with 256
ranks has many changes."""
MAX_INTERVAL = 5.0
"""Maximum number of seconds between two updates of a page, because round trips change without an event."""


class Feed:
    """Collects events during an `async with` block, and produces updates for any number of pages.

    Args:
        service: Answers the requests of other programs in this relay-client.
    """

    def __init__(self, service: ControlService) -> None:
        self._service = service
        self._subscriber = Subscriber(self._receive)
        self._events: deque[Event] = deque(maxlen=MAX_EVENTS)
        self._count = 0
        """Number of events since relay-client started."""
        self._changed = asyncio.Event()

    def __repr__(self) -> str:
        return f"<Feed {self._count} events>"

    async def __aenter__(self) -> Feed:
        self._service.subscribers.add(self._subscriber)
        await self._service.answer(Subscribe(tuple(kind for kind in EVENTS if kind != "log")), self._subscriber)
        return self

    async def __aexit__(self, *_exc_info: object) -> None:
        self._service.subscribers.discard(self._subscriber)

    async def updates(self) -> AsyncGenerator[dict[str, object], None]:
        """Yield the state and the kept events, then, indefinitely, the state and the new events after each change.

        Each update has `state` and `events`, encoded as on the control socket.
        """
        seen = 0
        while True:
            changed, count = self._changed, self._count
            new = list(self._events)[-(count - seen) :] if count > seen else []
            seen = count
            state = await self._service.answer(GetStatus(), self._subscriber)
            yield {"state": encode(state), "events": [encode(event) for event in new]}
            await asyncio.sleep(MIN_INTERVAL)
            with contextlib.suppress(*TIMEOUT_ERRORS):
                async with timeout(MAX_INTERVAL - MIN_INTERVAL):
                    await changed.wait()

    def _receive(self, event: Event) -> None:
        self._events.append(event)
        self._count += 1
        self._changed.set()
        self._changed = asyncio.Event()
