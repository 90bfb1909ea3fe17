"""Settings of the azure-debug-relay package, so that its users need not change theirs.

    .azrelay.json in the working directory:  {"AZRELAY_CONNECTION_STRING": "...", "AZRELAY_CONNECTION_NAME": "myhc"}

or two environment variables of the same names; the file comes first, as it did there. Its users made the file in their
editor, so others can often read it: that is a warning here and no error. What another user has put there is not used.
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
"""What releases before 0.3 called it."""

logger = logging.getLogger(__name__)


def read_config_file(path: Path) -> tuple[str, str | None]:
    """Return the connection string and the hybrid connection's name, if there is one.

    Raises:
        ConfigurationError: the file is somebody else's, cannot be read, or holds no connection string.
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
            f"{path} holds no {OLD_STRING_VARIABLE}", hint=f'it looks like {{"{OLD_STRING_VARIABLE}": "Endpoint=..."}}'
        )
    name = _text(fields, OLD_NAME_VARIABLE) or _text(fields, _OLDER_NAME_VARIABLE)
    return _text(fields, OLD_STRING_VARIABLE), name or None


def _check_owner(path: Path, facts: os.stat_result) -> None:
    """Refuse a file of another user: in a directory that all may write to, it would choose the relay for us."""
    if os.name != "posix":
        return
    if facts.st_uid not in {os.getuid(), 0}:
        raise ConfigurationError(
            f"{path} belongs to another user", hint="run in a directory of your own, or use --connection-string-file"
        )
    if facts.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        logger.warning("others can read %s, which holds a key; type: chmod 600 %s", path, path)


def _text(fields: dict[str, object], name: str) -> str:
    value = fields.get(name)
    return value.strip() if isinstance(value, str) else ""
