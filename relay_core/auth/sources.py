"""Where the connection string comes from, in a fixed order that can be explained.

1. an explicit flag or argument        works, but warns: other users of the machine can read command lines
2. an explicit file                    must not be readable by others (0600)
3. RELAY_CONNECTION_STRING             environment
4. RELAY_CONNECTION_STRING_FILE        environment; the file must not be readable by others
"""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Mapping
from pathlib import Path

from relay_core.errors import ConfigurationError
from relay_core.hyco.connection_string import ConnectionString

__all__ = [
    "CONNECTION_STRING_FILE_VARIABLE",
    "CONNECTION_STRING_VARIABLE",
    "find_connection_string",
    "read_secret_file",
]

CONNECTION_STRING_VARIABLE = "RELAY_CONNECTION_STRING"
CONNECTION_STRING_FILE_VARIABLE = "RELAY_CONNECTION_STRING_FILE"
MAX_SECRET_BYTES = 64 * 1024
"""A connection string has a few hundred bytes; this stops a wrong path from filling the memory."""

logger = logging.getLogger(__name__)


def find_connection_string(
    *,
    text: str | None = None,
    file: str | None = None,
    environ: Mapping[str, str] | None = None,
    hc: str | None = None,
) -> ConnectionString:
    """Return the connection string of the first source that has one, for hybrid connection `hc` if given.

    Args:
        text: An explicit connection string; the caller warns if it came from a command line.
        file: An explicit file.
        environ: Defaults to the environment of this process.
        hc: Name of the hybrid connection, for strings of a whole namespace.

    Raises:
        ConfigurationError: no source has one, or the first that has one is unusable.
    """
    environ = os.environ if environ is None else environ
    if text:
        found = text
    elif file:
        found = read_secret_file(file)
    elif environ.get(CONNECTION_STRING_VARIABLE):
        found = environ[CONNECTION_STRING_VARIABLE]
    elif environ.get(CONNECTION_STRING_FILE_VARIABLE):
        found = read_secret_file(environ[CONNECTION_STRING_FILE_VARIABLE])
    else:
        raise ConfigurationError(
            "no connection string is configured",
            hint=f"set {CONNECTION_STRING_VARIABLE}, or {CONNECTION_STRING_FILE_VARIABLE} to a file with mode 0600, "
            "or use --connection-string-file",
        )
    parsed = ConnectionString.parse(found)
    return parsed.with_entity(hc) if hc else parsed


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
        raise ConfigurationError(f"{path} is too large for a connection string", hint="check the path")
    try:
        return data.decode("utf-8-sig").strip()
    except UnicodeDecodeError:
        raise ConfigurationError(f"{path} is no text", hint="it holds one line, the connection string") from None
