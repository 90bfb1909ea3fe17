"""The audit log of the MCP server: one JSON object for each tool call, without values from the job."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path

from relay_client.user_directory import make_private, state_directory
from relay_core.errors import ConfigurationError

MAX_ARGUMENT = 2_000
"""Maximum number of characters that are recorded for one argument; an expression may be longer."""


class AuditLog:
    """Appends records to a file; each line is written with one call, so several servers may share the file.

    Args:
        path: The file, which is created with mode 0600; by default, one in the state directory of this user.

    Raises:
        ConfigurationError: the file cannot be written.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path or state_directory() / "mcp-audit.jsonl"
        try:
            if path is None:
                make_private(self.path.parent)
            self._append(b"")
        except OSError as error:
            raise ConfigurationError(
                f"cannot write the audit log {self.path}: {error.strerror or error}",
                hint="specify another file with --audit-file",
            ) from error

    def write(
        self, tool: str, arguments: Mapping[str, object], *, outcome: str, detail: str, seconds: float, now: datetime
    ) -> None:
        """Append the record of a call.

        Args:
            tool: The name of the tool.
            arguments: The arguments that the coding agent passed.
            outcome: "ok", "refused", "failed", "invalid" (the arguments), "crashed" or "cancelled".
            detail: The error, or what was left out of the result.
            seconds: How long the call took.
            now: When the call ended, with a time zone.

        Raises:
            OSError: the file can no longer be written.
        """
        record = {
            "time": now.astimezone(timezone.utc).isoformat(timespec="milliseconds"),
            "pid": os.getpid(),
            "tool": tool,
            "ranks": _short(arguments.get("ranks", arguments.get("rank", "all"))),
            "arguments": {name: _short(value) for name, value in arguments.items() if name not in {"rank", "ranks"}},
            "outcome": outcome,
            "detail": _short(detail),
            "seconds": round(seconds, 3),
        }
        self._append(f"{json.dumps(record)}\n".encode())

    def _append(self, line: bytes) -> None:
        descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        with open(descriptor, "ab", buffering=0) as file:  # noqa: PTH123 - a descriptor
            file.write(line)


def _short(value: object) -> object:
    text = value if isinstance(value, str) else json.dumps(value)
    return value if len(text) <= MAX_ARGUMENT else f"{text[:MAX_ARGUMENT]}..."
