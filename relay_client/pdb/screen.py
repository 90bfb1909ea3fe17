"""The terminal: a line is read at the bottom, and what the job prints meanwhile appears above it."""

from __future__ import annotations

import contextlib
import sys
import threading
from types import ModuleType

__all__ = ["Screen"]

_CLEAR_LINE = "\r\x1b[K"


class Screen:
    """Reads lines in one thread and shows text from any.

    Line editing and history come from `readline` where Python has it. If stdin is no terminal its lines are commands,
    and no prompt is shown.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._prompt: str | None = None
        """What stands in the last line while a line is read."""
        self._unfinished = ""
        """What the job has printed since its last line break."""
        self._readline = _find_readline() if sys.stdin.isatty() else None

    def __repr__(self) -> str:
        return f"<Screen {'waits for a line' if self._prompt is not None else 'shows'}>"

    def ask(self, prompt: str) -> str:
        """Return the next line.

        Raises:
            EOFError: there are no more; Ctrl-D.
            KeyboardInterrupt: Ctrl-C.
        """
        if not sys.stdin.isatty():
            prompt = ""
        with self._lock:
            self._flush()
            self._prompt = prompt
        try:
            return input(prompt)
        finally:
            with self._lock:
                self._prompt = None

    def show(self, text: str) -> None:
        """Show a text of the debugger's own, on lines of its own."""
        with self._lock:
            self._flush()
            self._write(f"{text}\n")

    def show_output(self, text: str) -> None:
        """Show what the job prints, as soon as a line is complete; progress bars end theirs with a return."""
        with self._lock:
            self._unfinished += text
            end = max(self._unfinished.rfind("\n"), self._unfinished.rfind("\r")) + 1
            complete, self._unfinished = self._unfinished[:end], self._unfinished[end:]
            if complete:
                self._write(complete)

    def _flush(self) -> None:
        if self._unfinished:
            self._write(f"{self._unfinished}\n")
            self._unfinished = ""

    def _write(self, text: str) -> None:
        if self._prompt:
            typed = self._readline.get_line_buffer() if self._readline is not None else ""
            text = f"{_CLEAR_LINE}{text}{self._prompt}{typed}"
        with contextlib.suppress(OSError):  # whoever read this has gone; the job must be let go in order
            sys.stdout.write(text)
            sys.stdout.flush()


def _find_readline() -> ModuleType | None:
    try:
        import readline  # noqa: PLC0415 - importing it changes how input() works
    except ImportError:  # Windows
        return None
    return readline
