"""A connection to the control socket, sans-IO: lines of JSON in, events and lines out.

    Unix socket     S: {"hello": {...}, "version": 1}
    TCP             S: {"challenge": "9f..", "version": 1}
                    C: {"nonce": "51..", "proof": HMAC-SHA256(token, "client:9f..:51..")}
                    S: {"hello": {...}, "version": 1, "proof": HMAC-SHA256(token, "server:9f..:51..")}
    then            C: {"id": 1, "request": "attach", "rank": 3}
                    S: {"id": 1, "result": {...}}   or   {"id": 1, "error": {"sentence", "hint", "exit_code"}}
                    S: {"event": "stopped", "time": ..., "text": ..., ...}

Any user can connect to a TCP port. Therefore both sides prove that they know a token from a private file of this user,
without sending it. If a relay-client was killed, another program that listens on its port can neither impersonate it
nor learn the token.
"""

from __future__ import annotations

import dataclasses
import hashlib
import hmac
import inspect
import json
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from relay_client.control.messages import REQUESTS, VERSION, Request, Result
from relay_client.control.state import ClientId
from relay_client.ranks.changes import Event
from relay_client.ranks.record import encode
from relay_core import errors
from relay_core.errors import ProtocolError, RelayDebugError, Unauthorized, UsageError
from relay_core.json_values import json_object
from relay_core.records import fields_of

# Conversion of JSON to frozen dataclasses: the only place where control socket messages are validated.
#
# Unknown fields are ignored, so that a newer program can add fields. A missing field
# gets its default. Field types are str, int, float, bool, `object` (any JSON), dataclasses, `X | None`, `tuple[X, ...]`
# and `Mapping[str, X]`.

T = TypeVar("T")


def decode(kind: type[T], value: object) -> T:
    """Return the dataclass for a JSON object.

    Raises:
        ProtocolError: the value is not an object, a required field is missing, or a field has the wrong type.
    """
    if not isinstance(value, Mapping):
        raise ProtocolError(f"invalid {kind.__name__}: not a JSON object")
    found = {}
    for field in fields_of(kind):
        if value.get(field.name) is not None:
            found[field.name] = _decoded(field.kind, value[field.name], f"{kind.__name__}.{field.name}")
        elif not field.has_default:
            raise ProtocolError(f"invalid {kind.__name__}: '{field.name}' is missing")
    return kind(**found)


def _decoded(form: Any, value: object, where: str) -> Any:
    if form is object:
        return value
    if typing.get_origin(form) is tuple and isinstance(value, list):
        element = typing.get_args(form)[0]
        return tuple(_decoded(element, each, where) for each in value)
    if typing.get_origin(form) is Mapping and isinstance(value, dict):
        element = typing.get_args(form)[1]
        return {name: _decoded(element, each, where) for name, each in value.items()}
    if dataclasses.is_dataclass(form):
        return decode(typing.cast("type[Any]", form), value)
    if form is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if type(value) is form:
        return value
    raise ProtocolError(f"invalid {where}: unexpected type {type(value).__name__}")


MAX_REQUEST = 64 * 1024
"""Maximum number of bytes in a line from the client; requests are short."""
MAX_RESULT = 64 * 1024 * 1024
"""Maximum number of bytes in a line from the server; the longest lines have the stacks of 256 ranks with variables."""

_ERRORS: dict[int, type[RelayDebugError]] = {
    kind.exit_code: kind
    for _, kind in inspect.getmembers(errors, inspect.isclass)
    if issubclass(kind, RelayDebugError)
    and kind is not errors.Rejected  # its constructor needs the status of a response
}


class _Lines:
    """An end of a connection: splits received bytes into JSON objects, and collects lines to send."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._unread = bytearray()
        self._to_send: list[bytes] = []

    def _feed(self, data: bytes) -> list[dict[str, Any]]:
        """Return the complete lines.

        Raises:
            ProtocolError: a line is too long, or not a JSON object.
        """
        rest, *beginnings = data.split(b"\n")  # without the earlier bytes: a line may arrive in a thousand parts
        self._unread += rest
        lines = []
        for beginning in beginnings:
            lines.append(bytes(self._unread))
            self._unread = bytearray(beginning)
        if max(map(len, [*lines, self._unread])) > self._limit:
            raise ProtocolError("a line on the control connection is too long")
        return [json_object(line, "a line on the control connection") for line in lines if line.strip()]

    def _send(self, message: Mapping[str, object]) -> None:
        self._to_send.append(json.dumps(message, separators=(",", ":")).encode() + b"\n")

    def data_to_send(self) -> bytes:
        """Return the bytes to write."""
        data = b"".join(self._to_send)
        self._to_send.clear()
        return data


def _proof(token: str, side: str, challenge: str, nonce: str) -> str:
    return hmac.new(token.encode(), _bytes(f"{side}:{challenge}:{nonce}"), hashlib.sha256).hexdigest()


def _is_proof(found: object, expected: str) -> bool:
    return isinstance(found, str) and hmac.compare_digest(_bytes(found), expected.encode())


def _bytes(text: str) -> bytes:
    # JSON can contain lone surrogates, which UTF-8 cannot encode.
    return text.encode(errors="surrogatepass")


class ServerProtocol(_Lines):
    """The server's end of one connection.

    Args:
        hello: Identity of this relay-client.
        token: The token that the client must know; None if the socket shows that the client belongs to the same user.
        challenge: A random text, used once; required with a token.
    """

    def __init__(self, hello: ClientId, *, token: str | None = None, challenge: str = "") -> None:
        super().__init__(MAX_REQUEST)
        self._hello = {"hello": encode(hello), "version": VERSION}
        self._token = token
        self._challenge = challenge
        self.is_open = token is None
        """True once the client may send requests."""
        self._send(self._hello if self.is_open else {"challenge": challenge, "version": VERSION})

    def receive_data(self, data: bytes) -> list[tuple[int, Request]]:
        """Process received bytes, and return the requests in them, each with its id. An invalid one is answered here.

        Raises:
            ProtocolError: the bytes are not lines of JSON objects with an id.
            Unauthorized: the client does not know the token.
        """
        requests = []
        for message in self._feed(data):
            if not self.is_open:
                self._authenticate(message)
            elif (request := self._request(message)) is not None:
                requests.append(request)
        return requests

    def _authenticate(self, message: Mapping[str, object]) -> None:
        token, nonce = self._token or "", str(message.get("nonce"))
        if not _is_proof(message.get("proof"), _proof(token, "client", self._challenge, nonce)):
            raise Unauthorized("a program without the token connected to the control port")
        self.is_open = True
        self._send({**self._hello, "proof": _proof(token, "server", self._challenge, nonce)})

    def _request(self, message: Mapping[str, object]) -> tuple[int, Request] | None:
        number, name = message.get("id"), message.get("request")
        if not isinstance(number, int) or isinstance(number, bool):
            raise ProtocolError("a request on the control connection has no id")
        kind = next((kind for kind in REQUESTS if kind.name == name), None)
        try:
            if kind is None:
                sentence = f"unknown request: {str(name)[:40]!r}"
                raise UsageError(sentence, hint="restart the running relay-client; it may be an older version")
            return number, decode(kind, message)
        except RelayDebugError as error:
            self.send_error(number, error)
            return None

    def send_result(self, number: int, result: Result) -> None:
        """Answer a request."""
        self._send({"id": number, "result": encode(result)})

    def send_error(self, number: int, error: RelayDebugError) -> None:
        """Answer a request that failed."""
        body = {"sentence": error.sentence, "hint": error.hint, "exit_code": error.exit_code}
        self._send({"id": number, "error": body})

    def send_event(self, event: Event) -> None:
        """Send an event."""
        self._send(encode(event))


@dataclass(frozen=True)
class Received:
    """A message that a client has received: the hello, a result, an error or an event."""

    hello: ClientId | None = None
    id: int | None = None
    result: Mapping[str, object] | None = None
    error: RelayDebugError | None = None
    event: Event | None = None


class ClientProtocol(_Lines):
    """The client's end of one connection.

    Args:
        token: The token that both sides must know; None for a Unix socket.
        nonce: A random text, used once; required with a token.
    """

    def __init__(self, *, token: str | None = None, nonce: str = "") -> None:
        super().__init__(MAX_RESULT)
        self._token = token
        self._nonce = nonce
        self._challenge: str | None = None
        self.last_id = 0
        """The id of the last request."""
        self._is_open = False

    def receive_data(self, data: bytes) -> list[Received]:
        """Process received bytes, and return the messages in them.

        Raises:
            ProtocolError: the bytes do not follow the protocol.
            Unauthorized: the server does not know the token.
        """
        received = [self._received(message) for message in self._feed(data)]
        return [each for each in received if each is not None]

    def _received(self, message: Mapping[str, Any]) -> Received | None:
        if not self._is_open:
            return self._greeted(message)
        number = message.get("id")
        match message:
            case {"id": int(), "result": dict(result)}:
                return Received(id=number, result=result)
            case {"id": int(), "error": dict(error)}:
                return Received(id=number, error=_error(error))
            case {"event": str()}:
                return Received(event=decode(Event, message))
        raise ProtocolError("unknown message on the control connection")

    def _greeted(self, message: Mapping[str, Any]) -> Received | None:
        if self._token is not None and self._challenge is None:
            self._challenge = str(message.get("challenge"))
            proof = _proof(self._token, "client", self._challenge, self._nonce)
            self._send({"nonce": self._nonce, "proof": proof})
            return None
        if self._token is not None:
            expected = _proof(self._token, "server", self._challenge or "", self._nonce)
            if not _is_proof(message.get("proof"), expected):
                raise Unauthorized("another program is listening on the control port")
        self._is_open = True
        return Received(hello=decode(ClientId, message.get("hello")))

    def send_request(self, request: Request) -> int:
        """Send a request and return its id."""
        self.last_id += 1
        self._send({"id": self.last_id, "request": request.name, **encode(request)})
        return self.last_id


def _error(found: Mapping[str, object]) -> RelayDebugError:
    """Return a received error as an instance of the class that has its exit code."""
    code = found.get("exit_code")
    kind = _ERRORS.get(code, RelayDebugError) if isinstance(code, int) else RelayDebugError
    return kind(str(found.get("sentence", "")), hint=str(found.get("hint", "")))
