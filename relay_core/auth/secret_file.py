"""Files that contain a secret and must be readable by their owner only."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from relay_core.errors import ConfigurationError

__all__ = ["MAX_SECRET_BYTES", "read_secret_file"]

MAX_SECRET_BYTES = 64 * 1024
"""Limits memory usage if the path is wrong; a connection string has a few hundred bytes."""


def read_secret_file(path: str) -> str:
    """Return the contents of a secret file without surrounding whitespace.

    Raises:
        ConfigurationError: The file is missing, too large, not text, or readable by other users (not checked on
            Windows, where file modes do not show this).
    """
    try:
        with Path(path).open("rb") as handle:
            mode = os.fstat(handle.fileno()).st_mode
            data = handle.read(MAX_SECRET_BYTES + 1)
    except OSError as error:
        raise ConfigurationError(f"cannot read {path}: {error.strerror}", hint="check the path") from None
    if os.name == "posix" and stat.S_IMODE(mode) & (stat.S_IRWXG | stat.S_IRWXO):
        raise ConfigurationError(
            f"other users can read {path} (mode {stat.S_IMODE(mode):04o}), which contains a secret",
            hint=f"run: chmod 600 {path}",
        )
    if len(data) > MAX_SECRET_BYTES:
        raise ConfigurationError(f"{path} is too large for a secret", hint="check the path")
    try:
        return data.decode("utf-8-sig").strip()
    except UnicodeDecodeError:
        raise ConfigurationError(
            f"{path} is not a text file", hint="use a file that contains only the secret, on one line"
        ) from None
