"""The loop of `relay-client watch`: performs the verb until the watch ends, and prints the hits as they arrive."""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from relay_client.cli.inspection.asking import Perform, performing
from relay_client.ui.text import LISTING, MINUTE, duration
from relay_client.verbs.watch import LAST_SECONDS, Cursor, Watch
from relay_client.watching import HitOf, Watching, hit_as_object, hits_text
from relay_core.agent_api.watch import LEASE, WAIT
from relay_core.compat import TIMEOUT_ERRORS, timeout
from relay_core.errors import NoListener, RelayDebugError
from relay_core.foreign import escape_controls

INTERVAL = 1.0
"""Seconds from one request to the next if no process can wait for a hit."""
RESTART_SECONDS = 10.0
"""Seconds without any process after which the job has ended; a launcher restarts its ranks within a few seconds."""

logger = logging.getLogger(__name__)


class WatchLoop:
    """One watch, from its installation in all ranks to the table at its end.

    Args:
        arguments: The parsed command line.
        request: The watch.
    """

    def __init__(self, arguments: argparse.Namespace, request: Watch) -> None:
        self._arguments = arguments
        self._request = request
        self._watching = Watching(request.hits)
        self._perform: Perform
        self._problem = ""
        """Why the last request that failed has failed."""
        self.end = ""
        """Why the watch has ended; "" if it was interrupted."""

    @property
    def reported(self) -> int:
        """The number of hits."""
        return self._watching.reported

    async def run(self) -> None:
        """Watch until the end.

        Raises:
            RelayDebugError: the watch cannot be installed.
        """
        clock = asyncio.get_running_loop().time
        async with performing(self._arguments) as self._perform:
            started = clock()
            hits = await self._poll()
            if not self._watching.cursors:
                raise NoListener("no matching process is registered", hint=LISTING)
            if not self._watching.ranks:
                self.end = f"no rank can watch {self._request.place}"
                self._say_notes()
                logger.error("%s", self.end)
                return
            _say(f"watching {self._request.place} in {self._watching.ranks}, for {self._limits}")
            self._print(hits)
            try:
                self.end = await self._until_over(started)
            finally:
                await self._finish(started)

    async def _until_over(self, started: float) -> str:
        """Return why the watch has ended."""
        clock = asyncio.get_running_loop().time
        request, alive, is_explained = self._request, started, False
        self._say_notes()
        while (left := started + request.lasts - (asked := clock())) > 0:
            has_hits = await self._try_to_poll(min(WAIT, left))
            if end := self._watching.end:
                return end
            self._say_notes()
            alive = clock() if has_hits is None or self._watching.has_processes else alive
            if clock() - alive > RESTART_SECONDS:
                return "all ranks have ended"
            if not (is_explained or self._watching.reported or clock() - started < WAIT):
                is_explained = True
                _say(self._watching.why_no_hits(request.place, is_conditional=bool(request.when), every=request.every))
            if not has_hits:
                await asyncio.sleep(max(0.0, asked + INTERVAL - clock()))
        return f"the watch has ended after {_text_of(request.lasts)}"

    @property
    def _limits(self) -> str:
        number = self._request.hits
        return f"{_text_of(self._request.lasts)}{f', {hits_text(number)}' if number else ''} or until Ctrl-C"

    async def _try_to_poll(self, wait: float) -> bool | None:
        """Print what is new, and return whether there were hits; None if nothing was learned: the next poll does it."""
        try:
            return self._print(await self._poll(wait=wait))
        except NoListener:
            return self._print(self._watching.received({"ranks": []}))
        except RelayDebugError as error:
            if not error.retryable:
                raise
            if error.sentence != self._problem:
                logger.warning("no answer, trying again: %s", error)
            self._problem = error.sentence
            return None

    async def _poll(self, **fields: Any) -> Sequence[HitOf]:
        """Return the new hits.

        Raises:
            RelayDebugError: the verb has failed.
        """
        after = tuple(Cursor(*cursor) for cursor in self._watching.cursors.items())
        answer: Any = (await self._perform(replace(self._request, after=after, **fields))).data
        return self._watching.received(answer)

    def _print(self, hits: Sequence[HitOf]) -> bool:
        for line in map(_json_line, hits) if self._arguments.json else self._watching.lines(hits):
            print(line, flush=True)
        return bool(hits)

    def _say_notes(self) -> None:
        for note in self._watching.notes():
            _say(note)

    async def _finish(self, started: float) -> None:
        """Remove the watch, and print the table."""
        try:
            async with timeout(LAST_SECONDS + 1):
                self._print(await self._poll(is_last=True))
        except NoListener:
            pass
        except (RelayDebugError, *TIMEOUT_ERRORS):
            _say(f"not every rank has confirmed the end of the watch; it ends there within {LEASE:g} s")
        seconds, end = asyncio.get_running_loop().time() - started, self.end or "the watch was stopped"
        if self._arguments.json:
            last = {"event": "ended", "text": end, "seconds": seconds, "ranks": self._watching.as_objects()}
            print(json.dumps(last), flush=True)
            return
        for line in [end, *self._watching.table(seconds)]:
            _say(line)


def _say(text: str) -> None:
    print(escape_controls(text), file=sys.stderr, flush=True)


def _json_line(found: HitOf) -> str:
    return json.dumps(hit_as_object(*found))


def _text_of(seconds: float) -> str:
    return f"{seconds:g} s" if seconds % MINUTE else duration(seconds)
