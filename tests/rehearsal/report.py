"""What a person reads while the rehearsal runs: one line for each step, and the outcome of each provoked failure."""

from __future__ import annotations

import contextlib
import sys
import textwrap
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TextIO

WIDTH = 116


@dataclass
class Answer:
    """What a step's block finds out."""

    text: str = ""
    details: list[str] = field(default_factory=list)
    """Lines to print below the step's own."""
    is_wrong: bool = False
    """True if the step has ended, but not as documented."""


class Report:
    """Prints steps as they end, and counts those that were not as documented."""

    def __init__(self) -> None:
        self._stream: TextIO = sys.stdout  # the caller may capture the output of what runs
        self.steps = 0
        self.wrong = 0

    def line(self, text: str = "") -> None:
        """Print a line, such as a title."""
        print(text, file=self._stream, flush=True)

    @contextlib.contextmanager
    def step(self, what: str) -> Iterator[Answer]:
        """Print what a step does, what answered, and how long it took; a step that raises is printed as failed."""
        self.steps += 1
        started, answer = time.monotonic(), Answer()
        try:
            yield answer
        except BaseException as error:
            self.wrong += 1
            self._print("FAILED", started, what, f"{error}".partition("\n")[0] or type(error).__name__)
            raise
        self.wrong += answer.is_wrong
        self._print("WRONG" if answer.is_wrong else "ok", started, what, answer.text)
        for detail in answer.details:
            self._fill(" " * 18 + detail, 20)

    def _print(self, outcome: str, started: float, what: str, answer: str) -> None:
        text = f"{outcome:7}{time.monotonic() - started:6.1f} s   {what}{': ' if answer else ''}{answer}"
        self._fill(text, 18)

    def _fill(self, text: str, indent: int) -> None:
        self.line(textwrap.fill(text, WIDTH, subsequent_indent=" " * indent, break_on_hyphens=False))
