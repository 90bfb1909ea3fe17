"""Settings of the azure-debug-relay package, accepted for compatibility.

    .azrelay.json in the working directory:  {"AZRELAY_CONNECTION_STRING": "...", "AZRELAY_CONNECTION_NAME": "myhc"}

or environment variables with the same names; as in that package, the file takes precedence. Such files are often
created in an editor and readable by other users, which causes only a warning. A file that belongs to another user is
refused.
"""

from __future__ import annotations

import json
import logging
import os
import stat
from pathlib import Path

from relay_core.access_settings import OLD_NAME_VARIABLE, OLD_STRING_VARIABLE
from relay_core.auth.secret_file import MAX_SECRET_BYTES
from relay_core.errors import ConfigurationError

__all__ = ["CONFIG_FILE", "read_config_file"]

CONFIG_FILE = ".azrelay.json"
_OLDER_NAME_VARIABLE = "AZRELAY_NAME"
"""Name of the field in releases of that package before 0.3."""

logger = logging.getLogger(__name__)


def read_config_file(path: Path) -> tuple[str, str | None]:
    """Return the connection string and the hybrid connection's name, or None if the file does not name it.

    Raises:
        ConfigurationError: The file belongs to another user, cannot be read, or has no connection string.
    """
    try:
        with path.open("rb") as handle:
            facts = os.fstat(handle.fileno())
            data = handle.read(MAX_SECRET_BYTES)
    except OSError as error:
        raise ConfigurationError(f"cannot read {path}: {error.strerror}", hint="check its permissions") from None
    _check_owner(path, facts)
    try:
        fields = json.loads(data.decode("utf-8-sig"))
    except (ValueError, RecursionError):
        fields = None
    if not isinstance(fields, dict) or not _text(fields, OLD_STRING_VARIABLE):
        raise ConfigurationError(
            f"{path} does not contain {OLD_STRING_VARIABLE}",
            hint=f'use the format {{"{OLD_STRING_VARIABLE}": "Endpoint=..."}}',
        )
    name = _text(fields, OLD_NAME_VARIABLE) or _text(fields, _OLDER_NAME_VARIABLE)
    return _text(fields, OLD_STRING_VARIABLE), name or None


def _check_owner(path: Path, facts: os.stat_result) -> None:
    if os.name != "posix":
        return
    # In a world-writable directory, another user's file could redirect the program to their relay.
    if facts.st_uid not in {os.getuid(), 0}:
        raise ConfigurationError(
            f"{path} belongs to another user", hint="run in a directory that you own, or use --connection-string-file"
        )
    if facts.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        logger.warning("other users can read %s, which contains a key; run: chmod 600 %s", path, path)


def _text(fields: dict[str, object], name: str) -> str:
    value = fields.get(name)
    return value.strip() if isinstance(value, str) else ""
