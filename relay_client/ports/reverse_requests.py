"""Prevents the debugged process from running programs on the laptop through the editor.

A debugger may send requests to its editor. `runInTerminal` makes VS Code run a command. `startDebugging` starts a debug
session with any configuration, which may launch a program or run a task. Debugpy's extension handles the event
`debugpyAttach` in the same way. An editor that attaches needs these two only for child processes. Debugpy then sends
the arguments of the editor's own `attach`, plus the child's process id.

    runInTerminal, any other request      answered with a failure
    startDebugging, debugpyAttach         passed on if the configuration is the editor's own `attach` to the same port,
                                          with the id of a child process; otherwise refused. An editor that attached
                                          without a port gets the local port instead of debugpy's on the node
    bytes that an editor might            the connection is aborted, because they might contain a request
    interpret differently

This layer applies only to local programs that use DAP; other connections pass unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from relay_core.dap.framing import MAX_BODY, encode
from relay_core.dap.messages import Event, Request, Response
from relay_core.dap.prefetch import arguments_of, parse
from relay_core.dap.splitter import MessageSplitter, Piece
from relay_core.layers.layer import Abort, EndLocal, Layer, Output, ToLocal, ToPeer

__all__ = ["ReverseRequestGuard"]

SUBPROCESS_EVENTS = frozenset({"debugpyAttach", "ptvsd_attach"})
"""Events whose body debugpy's extension uses as the configuration of a new debug session."""
ADDED_BY_DEBUGPY = frozenset({"name", "subProcessId", "connect", "request"})
"""Fields in which a child's configuration may differ from the arguments of the editor's `attach`."""
TASKS = frozenset({"preLaunchTask", "postDebugTask"})
"""Fields that run a program at each start; debugpy removes them."""
LOOPBACK = ("127.0.0.1", "localhost", "::1")
_HEADER = re.compile(rb"Content-Length: ?[0-9]+\r\n\r\n")
"""The only header that all parsers interpret identically; given two lengths, some use the first and others the last."""
_SUSPICIOUS = (b'request"', b'ttach"', b"\\u00")
"""Substrings of every message that must be checked. JSON can encode a letter as `\\u00` and two digits."""
_LENGTH = b"content-length"


class ReverseRequestGuard(Layer):
    """One editor's connection: the editor is the local program, the debugger is the peer.

    Args:
        port: The local port that the editor has connected to; None if the editor listens.
        on_refused: Called with a sentence when the first request is refused.
    """

    def __init__(self, port: int | None, on_refused: Callable[[str], None]) -> None:
        self._port = port
        self._on_refused = on_refused
        self._from_editor = MessageSplitter()
        self._from_debugger = MessageSplitter(MAX_BODY)
        self._attach: Mapping[str, object] | None = None
        """Arguments of the editor's `attach`."""
        self._failures: list[bytes] = []
        """Responses that wait for the end of a message of the editor."""
        self._tail = b""
        """The last forwarded bytes that were not DAP."""
        self._has_refused = False

    def __repr__(self) -> str:
        return f"<ReverseRequestGuard {'attached' if self._attach is not None else 'not attached'}>"

    def receive_local(self, data: bytes, now: float) -> list[Output]:  # noqa: ARG002 - as in Layer
        """Process bytes from the editor, and record the arguments of its `attach`."""
        pieces = self._from_editor.feed(data)
        if self._from_editor.is_foreign:
            self.is_finished = True
            held = self._from_debugger.end()
            to_local: list[Output] = [ToLocal(held)] if held else []
            return [ToPeer(b"".join(piece.raw for piece in pieces)), *to_local]
        for piece in pieces:
            if b'"attach"' in piece.body and (request := parse(piece.body, "request")):
                self._attach = arguments_of(request) if request["command"] == "attach" else self._attach
        return self._to_debugger([piece.raw for piece in pieces])

    def receive_local_eof(self, now: float) -> list[Output]:
        """Pass on EOF, after any incomplete message from the editor."""
        rest = self._from_editor.end()
        return [*([ToPeer(rest)] if rest else []), *super().receive_local_eof(now)]

    def receive_peer(self, data: bytes, now: float) -> list[Output]:  # noqa: ARG002 - as in Layer
        """Process bytes from the debugger; return those that the editor may receive, and responses to refusals."""
        passed: list[bytes] = []
        for piece in self._from_debugger.feed(data):
            if not self._is_safe(piece):
                return [Abort("the debugger sent bytes that are not messages of the debug adapter protocol")]
            passed.append(self._checked(piece))
        to_editor = b"".join(passed)
        return [*([ToLocal(to_editor)] if to_editor else []), *self._to_debugger([])]

    def receive_peer_eof(self, now: float) -> list[Output]:  # noqa: ARG002 - as in Layer
        """Pass on EOF without any incomplete message, because an editor might parse a complete message in it."""
        rest = self._from_debugger.end()
        return [EndLocal()] if not rest or self._may_be_message(rest) else [ToLocal(rest), EndLocal()]

    def _to_debugger(self, parts: list[bytes]) -> list[Output]:
        """Return bytes from the editor, followed by queued responses unless these would interrupt a message."""
        if self._from_editor.at_boundary:
            parts, self._failures = [*parts, *self._failures], []
        data = b"".join(parts)
        return [ToPeer(data)] if data else []

    def _is_safe(self, piece: Piece) -> bool:
        """True if an editor parses this piece as this layer does, or cannot find a message in it."""
        header = piece.raw[: len(piece.raw) - len(piece.body)]
        if _HEADER.fullmatch(header):
            return bool(piece.body) and self._tail == b""
        return not self._may_be_message(piece.raw)

    def _may_be_message(self, data: bytes) -> bool:
        """True if an editor might find a message in these and the preceding non-DAP bytes."""
        seen = self._tail + data
        self._tail = seen[1 - len(_LENGTH) :]
        return _LENGTH in seen.lower()

    def _checked(self, piece: Piece) -> bytes:
        """Return the part of a message that the editor may receive; answer a request that it may not receive."""
        if not any(part in piece.body for part in _SUSPICIOUS):
            return piece.raw
        if (request := parse(piece.body, "request")) is not None:
            return self._checked_request(request, piece.raw)
        if (event := parse(piece.body, "event")) is not None:
            return self._checked_event(event, piece.raw) if event["event"] in SUBPROCESS_EVENTS else piece.raw
        return piece.raw if parse(piece.body, "response") is not None else b""

    def _checked_request(self, request: Request, raw: bytes) -> bytes:
        arguments = arguments_of(request)
        is_attach = request["command"] == "startDebugging" and arguments.get("request") == "attach"
        permitted = self._permitted(arguments.get("configuration")) if is_attach else None
        if permitted is not None:
            is_unchanged = permitted == arguments["configuration"]
            changed = {**arguments, "configuration": permitted}
            return raw if is_unchanged else encode({**request, "arguments": changed})
        self._failures.append(_failure(request))
        self._refused(f"request {request['command']!r}")
        return b""

    def _checked_event(self, event: Event, raw: bytes) -> bytes:
        body = event.get("body")
        permitted = self._permitted(body) if isinstance(body, dict) and body.get("request") == "attach" else None
        if permitted is None:
            self._refused(f"event {event['event']!r}")
            return b""
        return raw if permitted == body else encode({**event, "body": permitted})

    def _permitted(self, configuration: object) -> dict[str, object] | None:
        """Return a child's configuration with its port, or None if it exceeds the editor's own `attach`."""
        own = self._attach
        if own is None or not isinstance(configuration, dict):
            return None
        if not isinstance(configuration.get("subProcessId"), int) or not isinstance(configuration.get("name"), str):
            return None
        others = {name: value for name, value in configuration.items() if name not in ADDED_BY_DEBUGPY}
        if TASKS & others.keys() or not all(name in own and own[name] == value for name, value in others.items()):
            return None
        if _port_of(own) is not None:
            return configuration if _is_same_port(configuration.get("connect"), own) else None
        if self._port is None:
            return None
        return {**configuration, "connect": {"host": "127.0.0.1", "port": self._port}}

    def _refused(self, what: str) -> None:
        if not self._has_refused:
            self._has_refused = True
            self._on_refused(f"refused {what} from the debugged process: it would start a program on this machine")


def _failure(request: Request) -> bytes:
    """Return the response to a request that the editor does not receive."""
    reason = "refused by relay-client: a debugged process must not start programs on this machine"
    response: Response = {
        "seq": 0,
        "type": "response",
        "request_seq": request["seq"],
        "command": request["command"],
        "success": False,
        "message": reason,
    }
    return encode(response)


def _connect_of(own: Mapping[str, object]) -> Mapping[str, object]:
    """Return the address in an editor's `attach`: `connect`, or in its older form the arguments `host` and `port`."""
    connect = own.get("connect")
    return connect if isinstance(connect, dict) else own


def _port_of(own: Mapping[str, object]) -> object:
    return _connect_of(own).get("port")


def _is_same_port(found: object, own: Mapping[str, object]) -> bool:
    """True if a child's `connect` equals that of the editor's `attach`; if it has no host, debugpy adds loopback."""
    host = _connect_of(own).get("host")
    hosts = (host,) if host is not None else LOOPBACK
    if not isinstance(found, dict) or found.keys() != {"host", "port"}:
        return False
    return found["port"] == _port_of(own) and found["host"] in hosts
