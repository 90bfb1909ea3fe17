"""Names of TensorBoard event files, and which paths of such files are safe to write to."""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from relay_core.agent_api.questions import AgentRequest
from relay_core.records import MISSING, Clean, NonEmpty, Wire

MAX_PATH = 512
_NAME = re.compile(r"events\.out\.tfevents\.[^/]*")
"""The names that TensorBoard, TensorFlow and torch give to the files that they write."""
_PART = re.compile(r"[\w=,@+~%() .-]{1,255}")
"""A part of a path that is a valid file name on every operating system."""


def is_event_file(name: str) -> bool:
    """Return whether a file name is that of an event file."""
    return _NAME.fullmatch(name) is not None


def is_safe_path(path: str) -> bool:
    """Return whether a path is relative, stays below its directory, and names an event file."""
    parts = path.split("/")
    are_names = all(_PART.fullmatch(part) and part.strip(". ") and part == part.strip() for part in parts)
    return len(path) <= MAX_PATH and are_names and is_event_file(parts[-1])


# Requests for the TensorBoard event files on a node: the list of files, and bytes of one of them.
#
# A file's name consists of the number of its directory, among those that the processes on the node have announced, and
# its path within that directory: `0/train/events.out.tfevents.1.node-0`.

MAX_CHUNK = 1024 * 1024
"""Maximum number of bytes in one response."""
MAX_FILES = 1000


@dataclass(frozen=True)
class EventFilesRequest(AgentRequest):
    """List the event files of all processes on the node."""

    name: ClassVar[str] = "event_files"


@dataclass(frozen=True)
class EventDataRequest(AgentRequest):
    """Return bytes of an event file."""

    name: ClassVar[str] = "event_data"
    arguments: ClassVar[tuple[str, ...]] = ("offset", "path")
    path: NonEmpty
    offset: Annotated[int, Wire(is_required=True)]
    """Offset of the first byte."""


def _read_path(value: Any, _clean: Clean) -> object:
    """Return a path within the directory of the copies; files with other paths are omitted."""
    return value if isinstance(value, str) and is_safe_path(value) else MISSING


def _read_data(value: Any, _clean: Clean) -> object:
    try:
        return base64.b64decode(value, validate=True)[:MAX_CHUNK]
    except (binascii.Error, TypeError, ValueError):
        return MISSING


def _write_data(data: bytes) -> str:
    return base64.b64encode(data).decode()


@dataclass(frozen=True)
class EventFile:
    """One event file."""

    path: Annotated[str, Wire(read=_read_path, is_required=True)]
    size: Annotated[int, Wire(is_required=True)]


@dataclass(frozen=True)
class EventFiles:
    """The response to `EventFilesRequest`."""

    files: Annotated[tuple[EventFile, ...], Wire(most=MAX_FILES)] = ()


@dataclass(frozen=True)
class EventData:
    """The response to `EventDataRequest`: at most `MAX_CHUNK` bytes, none at the end of the file."""

    data: Annotated[bytes, Wire(read=_read_data, write=_write_data)] = b""
