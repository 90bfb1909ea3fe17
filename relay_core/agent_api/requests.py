"""Named requests from a client to an agent, and their responses.

A client opens a stream to a name instead of a port. The agent sends one JSON object and closes the stream. The response
to `Listen` is sent when the debugger has connected, and its stream stays open until the client closes it.

    name             request              response
    wake/5678        `Wake(5678)`         `Ready`: debugpy is listening
    stacks           `Stacks()`           `relay_core.agent_api.stacks.NodeStacks`
    stacks/locals    `Stacks(True)`       the same, with variables
    collectives      `Collectives()`      `relay_core.agent_api.collectives.NodeCollectives`
    digest/5678/a.py `Digest(5678, "a.py")`
                                           `FileDigest` of a file in the directory in which the target was started
    evaluate         `Evaluate`, in the data of the stream
                                           `relay_core.agent_api.evaluation.NodeValues`
    push             `Push`, in the data of the stream
                                           `relay_core.agent_api.push.NodePushed`
    event_files      `EventFilesRequest`  `relay_core.agent_api.files.event_files.EventFiles`
    event_data/0/0/a/events.out.tfevents.1
                     `EventDataRequest`   `relay_core.agent_api.files.event_files.EventData`
    listen/5678      `Listen(5678)`       `Ready`, then streams that the agent opens to port 5678 of the client

Any response may be a `Failure` instead. A client may send a short `Evaluate` as a message, without a stream; its
response can offer searches, whose steps are messages too (`relay_core.agent_api.evaluation.SearchStep`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from relay_core.agent_api.evaluation import Evaluate, SearchStep
from relay_core.agent_api.files.event_files import EventDataRequest, EventFilesRequest
from relay_core.agent_api.push import Push
from relay_core.agent_api.values import Clean, as_is, mapping, text
from relay_core.errors import ProtocolError
from relay_core.value_parsers import is_port_text

__all__ = [
    "Collectives",
    "Digest",
    "Evaluate",
    "Failure",
    "FileDigest",
    "Listen",
    "Push",
    "Ready",
    "Request",
    "Stacks",
    "Wake",
    "decode_body",
    "encode_message",
    "parse_message",
    "parse_request",
]


MAX_RESPONSE = 32_000
"""Maximum size in bytes of a response that is sent as a message, which must fit into a frame of 32 KiB."""


@dataclass(frozen=True)
class Wake:
    """Start the debugger of the target with this port now."""

    name: ClassVar[str] = "wake"
    port: int

    def encode(self) -> str:
        """Return the name of the stream."""
        return f"{self.name}/{self.port}"

    @classmethod
    def parse(cls, target: str) -> Wake | None:
        """Read the name of a stream; return None if it names another request."""
        port = _port_after(target, cls.name)
        return None if port is None else cls(port)


@dataclass(frozen=True)
class Stacks:
    """Return the stacks of all threads of all processes on the node."""

    name: ClassVar[str] = "stacks"
    locals: bool = False
    """Whether to include local variables."""

    def encode(self) -> str:
        """Return the name of the stream."""
        return f"{self.name}/locals" if self.locals else self.name

    @classmethod
    def parse(cls, target: str) -> Stacks | None:
        """Read the name of a stream; return None if it names another request. An unknown suffix is ignored."""
        name, _, detail = target.partition("/")
        return cls(locals=detail == "locals") if name == cls.name else None


@dataclass(frozen=True)
class Collectives:
    """Return the process groups of all processes on the node, and what their main threads are doing."""

    name: ClassVar[str] = "collectives"

    def encode(self) -> str:
        """Return the name of the stream."""
        return self.name

    @classmethod
    def parse(cls, target: str) -> Collectives | None:
        """Read the name of a stream; return None if it names another request. An unknown suffix is ignored."""
        return cls() if target.partition("/")[0] == cls.name else None


@dataclass(frozen=True)
class Listen:
    """Make the debugger of the target with this port connect to the client's editor, which is listening."""

    name: ClassVar[str] = "listen"
    port: int

    def encode(self) -> str:
        """Return the name of the stream."""
        return f"{self.name}/{self.port}"

    @classmethod
    def parse(cls, target: str) -> Listen | None:
        """Read the name of a stream; return None if it names another request."""
        port = _port_after(target, cls.name)
        return None if port is None else cls(port)


@dataclass(frozen=True)
class Digest:
    """Return the digest of a source file of the target with this port."""

    name: ClassVar[str] = "digest"
    port: int
    path: str
    """Absolute, or relative to the directory in which the target was started."""

    def encode(self) -> str:
        """Return the name of the stream."""
        return f"{self.name}/{self.port}/{self.path}"

    @classmethod
    def parse(cls, target: str) -> Digest | None:
        """Read the name of a stream; return None if it names another request."""
        name, _, rest = target.partition("/")
        port, _, path = rest.partition("/")
        return cls(int(port), path) if name == cls.name and is_port_text(port) and path else None


Request = Wake | Stacks | Collectives | Digest | Evaluate | Push | EventFilesRequest | EventDataRequest | Listen


def parse_request(target: str) -> Request | None:
    """Read the name of a stream; return None if this version does not support the request."""
    kinds: tuple[type[Request], ...] = (
        *(Wake, Stacks, Collectives, Digest, Evaluate, Push, EventFilesRequest, EventDataRequest, Listen),
    )
    return next((request for kind in kinds if (request := kind.parse(target)) is not None), None)


def encode_message(response: Mapping[str, object]) -> bytes:
    """Return a response as a message, or a `Failure` if it is too long."""
    encoded = json.dumps(response, separators=(",", ":")).encode()
    if len(encoded) <= MAX_RESPONSE:
        return encoded
    return encode_message(Failure(f"the response is {len(encoded)} bytes long; the limit is {MAX_RESPONSE}").encode())


def decode_body(body: bytes | bytearray) -> object:
    """Return the JSON of a request; raises ProtocolError if it is not JSON."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        raise ProtocolError("the request body is not JSON") from None


def parse_message(body: bytes) -> Evaluate | SearchStep:
    """Read a request that was sent as a message.

    Raises:
        ProtocolError: it is not JSON.
        UsageError: as in `Evaluate.checked`.
    """
    return SearchStep.parse(body) or replace(Evaluate.parse_body(decode_body(body)), is_message=True)


def _port_after(target: str, name: str) -> int | None:
    found, _, digits = target.partition("/")
    return int(digits) if found == name and is_port_text(digits) else None


@dataclass(frozen=True)
class Ready:
    """Success without further data."""

    def encode(self) -> dict[str, object]:
        """Return the response."""
        return {"ready": True}

    @classmethod
    def parse(cls, value: object) -> Ready | None:
        """Read a response; return None if it is of another kind."""
        return cls() if mapping(value).get("ready") is True else None


@dataclass(frozen=True)
class FileDigest:
    """The digest of a file's content without line endings, because editors and git change these."""

    sha256: str = ""
    """Hexadecimal; "" if the file does not exist or is too large."""

    def encode(self) -> dict[str, object]:
        """Return the response."""
        return {"sha256": self.sha256}

    @classmethod
    def parse(cls, value: object) -> FileDigest:
        """Read a response."""
        return cls(text(mapping(value).get("sha256")))

    @classmethod
    def of(cls, content: bytes) -> FileDigest:
        """Return the digest of a file's content."""
        return cls(hashlib.sha256(content.replace(b"\r\n", b"\n")).hexdigest())


@dataclass(frozen=True)
class Failure:
    """The request has failed."""

    error: str
    """The reason, in one sentence."""
    hint: str = ""

    def encode(self) -> dict[str, object]:
        """Return the response."""
        return {"error": self.error, "hint": self.hint}

    @classmethod
    def parse(cls, value: object, clean: Clean = as_is) -> Failure | None:
        """Read a response; return None if it is of another kind."""
        fields = mapping(value)
        if not isinstance(fields.get("error"), str):
            return None
        return cls(text(fields.get("error"), clean), text(fields.get("hint"), clean))
