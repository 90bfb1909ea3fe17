"""Files of the job that the agent serves: digests of source files, and TensorBoard event files."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from relay_agent.node.in_agent.registered_process import RegisteredProcess
from relay_core.agent_api.event_files import (
    MAX_CHUNK,
    EventData,
    EventDataRequest,
    EventFile,
    EventFiles,
    is_event_file,
)
from relay_core.agent_api.requests import FileDigest
from relay_core.errors import ConfigurationError

__all__ = ["MAX_SOURCE", "digest_in", "file_digest", "list_files", "read_data"]


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


# The TensorBoard event files that the agent serves: those below the directories that the job has announced.
#
# No other file can be read: after all links have been followed, the file must be a regular file below its directory and
# must have the name of an event file.

MAX_FOLDERS = 10_000
"""Maximum number of folders that are searched; a job that announces its home directory must not occupy the agent for
minutes."""


def list_files(directories: Sequence[str]) -> EventFiles:
    """Return the event files below these directories, with their sizes."""
    return EventFiles(
        tuple(file for number, root in enumerate(directories) for file in sorted(_below(number, root), key=_path))
    )


def _path(file: EventFile) -> str:
    return file.path


def _below(number: int, root: str) -> Iterator[EventFile]:
    top = Path(root).resolve()
    for visited, (folder, _, names) in enumerate(os.walk(top)):
        if visited == MAX_FOLDERS:
            return
        for name in names:
            file = Path(folder, name)
            if is_event_file(name) and _is_inside(file, top):
                yield EventFile(f"{number}/{file.relative_to(top).as_posix()}", file.stat().st_size)


def _is_inside(file: Path, top: Path) -> bool:
    """Return whether a file, with all links followed, is a regular file below `top` with the name of an event file."""
    try:
        real = file.resolve()
        return real.is_relative_to(top) and is_event_file(real.name) and real.is_file()
    except (OSError, RuntimeError, ValueError):  # no permission, a loop of links, a zero byte
        return False


def read_data(directories: Sequence[str], request: EventDataRequest) -> EventData:
    """Return the bytes of a file, starting at an offset.

    Raises:
        ConfigurationError: the file is not one that `list_files` returns.
    """
    number, _, path = request.path.partition("/")
    if number.isascii() and number.isdecimal() and int(number) < len(directories):
        top = Path(directories[int(number)]).resolve()
        file = top / path
        if is_event_file(file.name) and _is_inside(file, top):
            return _read(file.resolve(), request.offset)
    raise ConfigurationError(f"'{request.path}' is not an event file on this node")


def _read(file: Path, offset: int) -> EventData:
    try:
        with file.open("rb") as opened:
            opened.seek(offset)
            return EventData(opened.read(MAX_CHUNK))
    except OSError as error:
        raise ConfigurationError(f"cannot read the event file: {error.strerror}") from None
