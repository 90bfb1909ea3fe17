"""Facts about the audit log of the MCP server."""

import json
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from relay_client.mcp.audit import MAX_ARGUMENT, AuditLog
from relay_core.errors import ConfigurationError

NOW = datetime(2026, 1, 2, 4, 4, 5, tzinfo=timezone(timedelta(hours=1)))


def test_record(tmp_path: Path):
    """A record is one JSON line with time, tool, ranks, arguments and outcome; long arguments are shortened."""
    path = tmp_path / "audit.jsonl"
    for outcome in ("ok", "refused"):
        arguments = {"ranks": "0-3", "expression": "x" * (MAX_ARGUMENT + 1), "seconds": 5.0}
        AuditLog(path).write("evaluate", arguments, outcome=outcome, detail="why", seconds=0.12345, now=NOW)
    first, second = map(json.loads, path.read_text().splitlines())
    assert ("ok", "refused") == (first.pop("outcome"), second.pop("outcome"))
    assert first == second
    assert isinstance(first.pop("pid"), int)
    assert {
        "time": "2026-01-02T03:04:05.000+00:00",
        "tool": "evaluate",
        "ranks": "0-3",
        "arguments": {"expression": f"{'x' * MAX_ARGUMENT}...", "seconds": 5.0},
        "detail": "why",
        "seconds": 0.123,
    } == first


def test_private_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """By default the file is in this user's state directory, and nobody else can read it."""
    monkeypatch.delenv("RELAY_CLIENT_DIR", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    log = AuditLog()
    assert tmp_path / "state" / "relay-debug" / "mcp-audit.jsonl" == log.path
    assert (0o700, 0o600) == (log.path.parent.stat().st_mode & 0o777, log.path.stat().st_mode & 0o777)


def test_file_that_cannot_be_written(tmp_path: Path):
    """Without its file, the server does not start."""
    with pytest.raises(ConfigurationError, match="cannot write the audit log") as caught:
        AuditLog(tmp_path / "missing" / "audit.jsonl")
    assert "--audit-file" in caught.value.hint
