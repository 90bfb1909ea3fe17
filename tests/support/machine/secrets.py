"""Keys for tests, and the proof that they show up nowhere.

Tests make their keys with `new_key()`; whatever a test or a program that it runs writes is checked for them, and for
the signatures that tokens carry.
"""

import base64
import logging
import os
import re

_keys: set[str] = set()
_SIGNATURE = re.compile(r"\bsig=[A-Za-z0-9%+/]{20,}")


class RecordingHandler(logging.Handler):
    """Keeps every record as text."""

    def __init__(self) -> None:
        super().__init__(logging.NOTSET)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


def new_key() -> str:
    """Return a random key of 32 bytes in base64 that must never be written anywhere."""
    key = base64.b64encode(os.urandom(32)).decode()
    _keys.add(key)
    return key


def check(*texts: str) -> None:
    """Fail if a text holds a key made here or a token's signature."""
    for text in texts:
        for key in _keys:
            assert key not in text, f"a key was written: {text.replace(key, '<key>')[:500]}"
        assert not _SIGNATURE.search(text), f"a token was written: {_SIGNATURE.sub('sig=<hidden>', text)[:500]}"
