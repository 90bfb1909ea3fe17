"""Requests for the TensorBoard event files on a node: the list of files, and bytes of one of them.

A file's name consists of the number of its directory, among those that the processes on the node have announced, and
its path within that directory: `0/train/events.out.tfevents.1.node-0`.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from relay_core.agent_api.files.names import is_safe_path
from relay_core.agent_api.values import count, mapping, objects, text

__all__ = [
    "MAX_CHUNK",
    "EventData",
    "EventDataRequest",
    "EventFile",
    "EventFiles",
    "EventFilesRequest",
]

MAX_CHUNK = 1024 * 1024
"""Maximum number of bytes in one response."""
MAX_FILES = 1000


@dataclass(frozen=True)
class EventFilesRequest:
    """List the event files of all processes on the node."""

    name: ClassVar[str] = "event_files"

    def encode(self) -> str:
        """Return the name of the stream."""
        return self.name

    @classmethod
    def parse(cls, target: str) -> EventFilesRequest | None:
        """Read the name of a stream; return None if it names another request."""
        return cls() if target == cls.name else None


@dataclass(frozen=True)
class EventDataRequest:
    """Return bytes of an event file."""

    name: ClassVar[str] = "event_data"
    path: str
    offset: int
    """Offset of the first byte."""

    def encode(self) -> str:
        """Return the name of the stream."""
        return f"{self.name}/{self.offset}/{self.path}"

    @classmethod
    def parse(cls, target: str) -> EventDataRequest | None:
        """Read the name of a stream; return None if it names another request."""
        name, _, rest = target.partition("/")
        offset, _, path = rest.partition("/")
        if name != cls.name or not offset.isascii() or not offset.isdecimal() or len(offset) > 15 or not path:
            return None
        return cls(path, int(offset))


@dataclass(frozen=True)
class EventFile:
    """One event file."""

    path: str
    size: int

    def encode(self) -> dict[str, object]:
        """Return one element of `files`."""
        return {"path": self.path, "size": self.size}


@dataclass(frozen=True)
class EventFiles:
    """The response to `EventFilesRequest`."""

    files: tuple[EventFile, ...] = ()

    def encode(self) -> dict[str, object]:
        """Return the response."""
        return {"files": [file.encode() for file in self.files[:MAX_FILES]]}

    @classmethod
    def parse(cls, value: object) -> EventFiles:
        """Read the response; files whose path would lead outside the directory of the copies are omitted."""
        return cls(tuple(_files(objects(mapping(value).get("files"))[:MAX_FILES])))


def _files(elements: Iterable[object]) -> Iterable[EventFile]:
    for element in elements:
        fields = mapping(element)
        path, size = text(fields.get("path")), count(fields.get("size"))
        if size is not None and is_safe_path(path):
            yield EventFile(path, size)


@dataclass(frozen=True)
class EventData:
    """The response to `EventDataRequest`: at most `MAX_CHUNK` bytes, none at the end of the file."""

    data: bytes

    def encode(self) -> dict[str, object]:
        """Return the response."""
        return {"data": base64.b64encode(self.data).decode()}

    @classmethod
    def parse(cls, value: object) -> EventData:
        """Read the response; invalid data is read as no data."""
        try:
            return cls(base64.b64decode(text(mapping(value).get("data")), validate=True)[:MAX_CHUNK])
        except (binascii.Error, ValueError):
            return cls(b"")
