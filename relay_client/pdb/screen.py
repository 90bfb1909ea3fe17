"""The terminal of the prompt: the input line is at the bottom, and the job's output appears above it."""

from __future__ import annotations

import contextlib
import sys
import threading
from types import ModuleType

__all__ = ["Screen"]

_CLEAR_LINE = "\r\x1b[K"


class Screen:
    """Reads lines in one thread and shows text from any thread.

    Line editing and history use `readline` if available. If stdin is not a terminal, its lines are read as commands
    without a prompt.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._prompt: str | None = None
        """The prompt on the last line while a line is being read; None otherwise."""
        self._unfinished = ""
        """Output of the job since its last line break."""
        self._readline = _find_readline() if sys.stdin.isatty() else None

    def __repr__(self) -> str:
        return f"<Screen {'reading' if self._prompt is not None else 'not reading'}>"

    def ask(self, prompt: str) -> str:
        """Return the next line.

        Raises:
            EOFError: stdin has ended, or the user has pressed Ctrl-D.
            KeyboardInterrupt: the user has pressed Ctrl-C.
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
        """Show text from the debugger, starting on a new line."""
        with self._lock:
            self._flush()
            self._write(f"{text}\n")

    def show_output(self, text: str) -> None:
        """Show output from the job, line by line; a carriage return, as in progress bars, also ends a line."""
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
        with contextlib.suppress(OSError):  # stdout is closed; detaching from the job must still work
            sys.stdout.write(text)
            sys.stdout.flush()


def _find_readline() -> ModuleType | None:
    try:
        import readline  # noqa: PLC0415 - importing it changes the behaviour of input()
    except ImportError:  # Windows
        return None
    return readline
