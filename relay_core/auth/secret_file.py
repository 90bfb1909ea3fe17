"""Files that hold a secret: only their owner may read them."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from relay_core.errors import ConfigurationError

__all__ = ["MAX_SECRET_BYTES", "read_secret_file"]

MAX_SECRET_BYTES = 64 * 1024
"""A connection string has a few hundred bytes; this stops a wrong path from filling the memory."""


def read_secret_file(path: str) -> str:
    """Return the text of a file that only its owner may read.

    Raises:
        ConfigurationError: the file is missing, too large, not text, or readable by others (not checked on Windows,
            where modes do not say who may read).
    """
    try:
        with Path(path).open("rb") as handle:
            mode = os.fstat(handle.fileno()).st_mode
            data = handle.read(MAX_SECRET_BYTES + 1)
    except OSError as error:
        raise ConfigurationError(f"cannot read {path}: {error.strerror}", hint="check the path") from None
    if os.name == "posix" and stat.S_IMODE(mode) & (stat.S_IRWXG | stat.S_IRWXO):
        raise ConfigurationError(
            f"others can read {path}, which holds a secret (mode {stat.S_IMODE(mode):04o})",
            hint=f"chmod 600 {path}",
        )
    if len(data) > MAX_SECRET_BYTES:
        raise ConfigurationError(f"{path} is too large for a secret", hint="check the path")
    try:
        return data.decode("utf-8-sig").strip()
    except UnicodeDecodeError:
        raise ConfigurationError(f"{path} is no text", hint="it holds one line, the secret") from None
