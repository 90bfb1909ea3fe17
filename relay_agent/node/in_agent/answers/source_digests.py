"""Digests of the source files of the job, with which a client finds out whether its own files are the same."""

from __future__ import annotations

import os
from pathlib import Path

from relay_agent.node.in_agent.registered_process import RegisteredProcess
from relay_core.agent_api.requests import FileDigest

__all__ = ["MAX_SOURCE", "digest_in", "file_digest"]

MAX_SOURCE = 4 * 1024 * 1024
"""Maximum size in bytes of a source file whose digest is computed."""


def file_digest(path: Path) -> FileDigest:
    """Return the digest of a regular file of at most `MAX_SOURCE` bytes."""
    try:
        if not path.is_file() or path.stat().st_size > MAX_SOURCE:
            return FileDigest()
        return FileDigest.of(path.read_bytes())
    except (OSError, ValueError):  # no permission to read it, or the path contains a zero byte
        return FileDigest()


def digest_in(process: RegisteredProcess, path: str) -> FileDigest:
    """Return the digest of a file as the process executes it: its code may have been replaced since it was loaded."""
    file = Path(process.info.cwd or "/", path)
    replaced = process.sources.get(os.path.realpath(file)) if process.sources else None
    return file_digest(file) if replaced is None else FileDigest(replaced)
