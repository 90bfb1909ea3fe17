"""Writes log lines in a thread: a terminal that takes no output, as after Ctrl-S, must not block the event loop."""

from __future__ import annotations

import contextlib
import logging
import queue
import sys
import threading
from collections.abc import Iterator
from typing import Any, TextIO

MAX_TEXTS = 1000
"""Number of texts, such as log lines, to keep for a terminal that takes no output; later ones are dropped."""
FLUSH_SECONDS = 1.0
"""Seconds to wait at the end until the terminal has taken the rest."""


@contextlib.contextmanager
def stderr_in_background() -> Iterator[None]:
    """Write what is written to stderr, and the log, in a thread during a block."""
    stream = _BackgroundStream(sys.stderr)
    try:
        with stderr_to(stream):
            yield
    finally:
        stream.finish()


@contextlib.contextmanager
def stderr_to(stream: Any) -> Iterator[None]:
    """Write what is written to stderr, and the log, to another text stream during a block."""
    with log_to(stream), contextlib.redirect_stderr(stream):
        yield


@contextlib.contextmanager
def log_to(stream: Any) -> Iterator[None]:
    """Write the log to another stream, of which only `write` is used, during a block."""
    handlers = [h for h in logging.getLogger("relay_client").handlers if isinstance(h, logging.StreamHandler)]
    before = [handler.setStream(stream) for handler in handlers]
    try:
        yield
    finally:
        for handler, own in zip(handlers, before, strict=True):
            handler.setStream(own)


class _BackgroundStream:
    """A text stream whose `write` never blocks; in other respects it is the given stream."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._texts: queue.Queue[str | None] = queue.Queue(MAX_TEXTS)
        """What is to be written; None for the end."""
        self._dropped = 0
        self._thread = threading.Thread(target=self._write_all, name="stderr", daemon=True)
        self._thread.start()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        try:
            self._texts.put_nowait(text)
        except queue.Full:
            self._dropped += text.count("\n")
        return len(text)

    def flush(self) -> None:
        pass

    def finish(self) -> None:
        """Wait until everything is written, for a limited time."""
        with contextlib.suppress(queue.Full):
            self._texts.put(None, timeout=FLUSH_SECONDS)
            self._thread.join(FLUSH_SECONDS)

    def _write_all(self) -> None:
        text: str | None = ""
        while text is not None:
            text = self._texts.get()
            self._write(text or "")
            if self._dropped and self._texts.empty():
                dropped, self._dropped = self._dropped, 0
                self._write(f"{dropped} lines were not written because the terminal took no output\n")

    def _write(self, text: str) -> None:
        """Write without the buffer, whose lock would block the interpreter's exit."""
        raw = getattr(self._stream.buffer, "raw", self._stream.buffer)
        data = text.encode(self._stream.encoding, "backslashreplace")
        with contextlib.suppress(OSError):  # the terminal is closed
            while data:
                data = data[raw.write(data) or len(data) :]
