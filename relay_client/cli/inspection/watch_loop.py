"""The loop of `relay-client watch`: performs the verb until the watch ends, and prints the hits as they arrive."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import sys
from collections.abc import Sequence
from typing import Any

from relay_client.cli.inspection.asking import Perform, performing
from relay_client.diverging import watching_of
from relay_client.ui.text import exact_duration
from relay_client.verbs.watch import HOLD, LAST_SECONDS, Watch
from relay_client.watching import HitOf
from relay_core.agent_api.watch import WAIT
from relay_core.compat import TIMEOUT_ERRORS, timeout
from relay_core.errors import NoListener, NoValue, RelayDebugError
from relay_core.exit_codes import NO_VALUE, SUCCESS
from relay_core.foreign import escape_controls

INTERVAL = 1.0
"""Seconds from one request to the next if no process can wait for a hit."""
POLL_WAIT = 5.0
"""Seconds for which a process waits for a hit; less than it may wait, so that a lost connection is noticed sooner."""
SILENCE = 3.0
"""Seconds without an answer, beyond that, after which a line reports that."""
NO_ANSWER = "the ranks do not answer: the connection may be lost; they keep their hits, and the watch continues"
RESTART_SECONDS = 10.0
"""Seconds without any process after which the job has ended; a launcher restarts its ranks within a few seconds."""
RESTARTING = f"waiting up to {RESTART_SECONDS:g} s for a restart"


class WatchLoop:
    """One watch, from its installation in all ranks to the table at its end.

    Args:
        arguments: The parsed command line.
        request: The watch.
        doubt: As of `Watching`.
    """

    def __init__(self, arguments: argparse.Namespace, request: Watch, doubt: str = "") -> None:
        self._arguments = arguments
        self._request = request
        self._watching = watching_of(request, doubt)
        self._is_silent = False
        """Whether the last request was not answered in time, or has failed."""
        self._is_explained = False
        """Whether a line has reported why nothing was reported."""
        self._perform: Perform
        self.end = "the watch was stopped"
        """Why the watch has ended."""
        self.status = SUCCESS

    async def run(self) -> None:
        """Watch until the end.

        Raises:
            RelayDebugError: the watch cannot be installed.
        """
        clock = asyncio.get_running_loop().time
        async with performing(self._arguments) as self._perform:
            started, limit = clock(), exact_duration(self._request.lasts)
            hits = await self._begin(started)
            try:
                _say(f"watching {self._watching.what} in {self._watching.ranks}, for {limit} or until Ctrl-C")
                self._print(hits)
                self.end = await self._until_over(hits, started) or f"the watch has ended after {limit}"
                self.status = SUCCESS if self._watching.has_value else NO_VALUE
            finally:
                await self._finish(started)

    async def _begin(self, started: float) -> Sequence[HitOf]:
        """Install the watch, and return the first hits; raises NoValue if no rank can watch the line."""
        try:
            hits = await self._poll()
        except asyncio.CancelledError:  # some ranks may have installed it
            await self._finish(started)
            raise
        if not self._watching.ranks:
            self._say_notes()
            raise NoValue(f"no rank can watch {self._watching.what}")
        return hits

    async def _until_over(self, hits: Sequence[HitOf], started: float) -> str:
        """Return why the watch has ended, after the first hits; "" if its time is over."""
        clock = asyncio.get_running_loop().time
        alive, asked = started, started - INTERVAL
        while not (end := self._watching.end):
            self._say_notes()
            if clock() - alive > RESTART_SECONDS:
                return "all ranks have ended"
            if clock() - started > WAIT:
                self._explain()
            if not hits:
                await asyncio.sleep(max(0.0, asked + INTERVAL - clock()))
            if (left := started + self._request.lasts - (asked := clock())) <= 0:
                return ""
            hits = ()
            try:
                hits = await self._poll(wait=min(POLL_WAIT, left))
                alive = clock()
            except RelayDebugError as error:  # the next answer contains the same hits
                if not error.retryable:
                    raise
                has_ended = isinstance(error, NoListener)
                alive = alive if has_ended else clock()
                self._say_silent(f"{error.sentence}; {RESTARTING if has_ended else 'the watch continues'}")
            self._print(hits)
        return end

    async def _poll(self, **fields: Any) -> Sequence[HitOf]:
        """Return the new hits.

        Raises:
            RelayDebugError: the verb has failed.
        """
        patience = fields.get("wait", 0.0) + SILENCE
        silence = asyncio.get_running_loop().call_later(patience, self._say_silent, NO_ANSWER)
        try:
            hits = await self._ask(**fields)
        finally:
            silence.cancel()
        if self._is_silent:
            self._is_silent = False
            _say("the ranks answer again")
        return hits

    async def _ask(self, **fields: Any) -> Sequence[HitOf]:
        request = self._request.after_hits(self._watching.cursors, **self._watching.changes, **fields)
        answer: Any = (await self._perform(request)).data
        return self._watching.received(answer)

    def _say_silent(self, text: str) -> None:
        """Print once why the ranks do not answer."""
        if not self._is_silent:
            _say(text)
        self._is_silent = True

    def _print(self, hits: Sequence[HitOf]) -> None:
        is_json, known = self._arguments.json, self._watching
        for line in map(json.dumps, known.objects(hits)) if is_json else known.lines(hits):
            print(line, flush=True)
        for line in self._watching.holding(hits) if self._request.then == HOLD else ():
            _say(line)

    def _explain(self) -> None:
        """Print once why nothing was reported, if that is so."""
        if not (self._is_explained or self._watching.reported):
            _say(self._watching.why_no_hits(has_condition=bool(self._request.when)))
        self._is_explained = True

    def _say_notes(self) -> None:
        for note in self._watching.notes():
            _say(note)

    async def _finish(self, started: float) -> None:
        """Remove the watch, and print the table."""
        with contextlib.suppress(RelayDebugError, *TIMEOUT_ERRORS):  # ranks that do not answer remove it themselves
            async with timeout(LAST_SECONDS + 1):
                self._print(await self._ask(is_last=True))
        seconds = asyncio.get_running_loop().time() - started
        if self._arguments.json:
            last = {"event": "ended", "text": self.end, "seconds": seconds, "ranks": self._watching.as_objects()}
            print(json.dumps(last), flush=True)
            return
        if self._watching.cursors:
            self._explain()
        for line in [self.end, *(self._watching.table(seconds) if self._watching.cursors else ())]:
            _say(line)


def _say(text: str) -> None:
    print(escape_controls(text), file=sys.stderr, flush=True)
