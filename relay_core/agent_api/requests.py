"""Named requests from a client to an agent, and their responses.

A client opens a stream to a name instead of a port. The agent sends one JSON object and closes the stream. The response
to `Listen` is sent when the debugger has connected, and its stream stays open until the client closes it.

    name             request              response
    wake/5678        `Wake(5678)`         `Ready`: debugpy is listening
    digest/5678/a.py `Digest(5678, "a.py")`
                                           `FileDigest` of a file in the directory in which the target was started
    env, stacks, ... a `Question`, whose fields are in the data of the stream
                                           `relay_core.agent_api.questions.NodeReplies`
    event_files      `EventFilesRequest`  `relay_core.agent_api.event_files.EventFiles`
    event_data/0/0/a/events.out.tfevents.1
                     `EventDataRequest`   `relay_core.agent_api.event_files.EventData`
    listen/5678      `Listen(5678)`       `Ready`, then streams that the agent opens to port 5678 of the client

Any response may be a `Failure` instead. `stream_name` and `parse_request` convert between a request and the name of its
stream.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, cast, get_args

from relay_core.agent_api.evaluation import Evaluate
from relay_core.agent_api.event_files import EventData, EventDataRequest, EventFiles, EventFilesRequest
from relay_core.agent_api.push import Push
from relay_core.agent_api.questions import (
    AgentRequest,
    NodeReplies,
    Question,
    ReadCollectives,
    ReadEnvironment,
    ReadProgress,
    ReadStacks,
)
from relay_core.agent_api.watch import Watch
from relay_core.errors import ProtocolError
from relay_core.records import NonEmpty, Port, Wire, fields_of, parse_or_none


@dataclass(frozen=True)
class Wake(AgentRequest):
    """Start the debugger of the target with this port now."""

    name: ClassVar[str] = "wake"
    arguments: ClassVar[tuple[str, ...]] = ("port",)
    port: Port


@dataclass(frozen=True)
class Listen(AgentRequest):
    """Make the debugger of the target with this port connect to the client's editor, which is listening."""

    name: ClassVar[str] = "listen"
    arguments: ClassVar[tuple[str, ...]] = ("port",)
    port: Port


@dataclass(frozen=True)
class Digest(AgentRequest):
    """Return the digest of a source file of the target with this port."""

    name: ClassVar[str] = "digest"
    arguments: ClassVar[tuple[str, ...]] = ("port", "path")
    port: Port
    path: NonEmpty
    """Absolute, or relative to the directory in which the target was started."""


NodeRequest = Wake | Digest | EventFilesRequest | EventDataRequest | Question
"""A request with a single `Response`, about processes or files of the node."""
Request = NodeRequest | Listen
QUESTIONS: tuple[type[Question], ...] = (
    ReadEnvironment,
    ReadProgress,
    ReadStacks,
    ReadCollectives,
    Evaluate,
    Push,
    Watch,
)
"""All classes of questions."""
_KINDS: dict[str, type[Request]] = {
    kind.name: kind for kind in (*get_args(Request), *QUESTIONS) if kind is not Question
}


def stream_name(request: Request) -> str:
    """Return the name of the stream of a request: its name and its arguments, as in `digest/5678/train.py`."""
    return "/".join([request.name, *(str(getattr(request, name)) for name in request.arguments)])


def parse_request(target: str) -> Request | None:
    """Read the name of a stream; return None if this version does not support the request."""
    name, _, rest = target.partition("/")
    kind = _KINDS.get(name)
    if kind is None or (rest and not kind.arguments):
        return None
    if not kind.arguments:
        return cast("Request", cast("Any", kind)())
    parts = rest.split("/", len(kind.arguments) - 1)
    kinds = {field.name: type(field.missing) for field in fields_of(cast("Any", kind))}
    fields = {name: _argument(kinds[name], part) for name, part in zip(kind.arguments, parts, strict=False)}
    return parse_or_none(kind, fields)


def _argument(kind: type, part: str) -> object:
    return (int(part) if part.isascii() and part.isdecimal() and len(part) < 16 else None) if kind is int else part


def decode_body(body: bytes | bytearray) -> object:
    """Return the JSON of a request; raises ProtocolError if it is not JSON."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        raise ProtocolError("the request body is not JSON") from None


@dataclass(frozen=True)
class Ready:
    """Success without further data."""

    ready: Annotated[bool, Wire(is_required=True)] = True


@dataclass(frozen=True)
class FileDigest:
    """The digest of a file's content with each CRLF as LF, because editors and git change line endings."""

    sha256: str = ""
    """Hexadecimal; "" if the file does not exist or is too large."""

    @classmethod
    def of(cls, content: bytes) -> FileDigest:
        """Return the digest of a file's content."""
        return cls(hashlib.sha256(content.replace(b"\r\n", b"\n")).hexdigest())


@dataclass(frozen=True)
class Failure:
    """The request has failed."""

    error: Annotated[str, Wire(is_required=True)]
    """The reason, in one sentence."""
    hint: str = ""


Response = Ready | FileDigest | EventFiles | EventData | NodeReplies
"""What an agent answers to a request that has not failed."""
