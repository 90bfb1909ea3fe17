"""Layers of a local port: the first bytes of a program, kept to be sent again, and a guard for requests of the job."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from relay_core.dap.framing import MAX_BODY
from relay_core.dap.messages import Event, Request, Response, arguments_of, parse_as
from relay_core.layers.layer import Abort, EndPeer, Layer, Output, ToLocal, ToPeer
from relay_core.layers.piece import MAX_PARSED, Kind

__all__ = ["MAX_EARLY_BYTES", "EarlyBytes", "RequestGuard"]


MAX_EARLY_BYTES = 256 * 1024
"""Maximum number of bytes buffered before the first answer; if there are more, no other stream can be tried."""


class EarlyBytes(Layer):
    """The buffer of one local connection. When started on another stream, it sends the buffered bytes again.

    Args:
        on_committed: Called when the peer has answered or the buffer is full; from then on, the connection stays on
            this stream.
        on_first: Called with the first bytes.
    """

    def __init__(
        self,
        on_committed: Callable[[], None] = lambda: None,
        on_first: Callable[[bytes], None] = lambda _data: None,
    ) -> None:
        self.has_stream = False
        """False while the bytes have to wait for a stream, for example for the first one. In this state, the buffer is
        never dropped, and the owner limits its size."""
        self._kept: list[ToPeer] = []
        self._size = 0
        """Number of buffered bytes."""
        self._on_committed = on_committed
        self._on_first = on_first

    def __repr__(self) -> str:
        return f"<EarlyBytes {'committed' if self.is_finished else self._size}>"

    def __len__(self) -> int:
        return self._size

    def start(self, now: float) -> list[Output]:  # noqa: ARG002 - as in Layer
        """Send the buffered bytes."""
        outputs: list[Output] = [*self._kept]
        self._commit_if_full()
        return outputs

    def receive_local(self, piece: ToPeer, now: float) -> list[Output]:
        """Buffer bytes from the local program, and pass them on."""
        if not self.is_finished:
            if not self._kept:
                self._on_first(piece.data)
            self._kept.append(piece)
            self._size += len(piece.data)
            self._commit_if_full()
        return super().receive_local(piece, now)

    def receive_local_eof(self, now: float) -> list[Output]:  # noqa: ARG002 - as in Layer
        """Pass EOF on; if no bytes preceded it, abort the stream instead, because the program expects no answer."""
        if self.is_finished or self._kept:
            return [EndPeer()]
        return [Abort("the local program disconnected before sending anything")]

    def receive_peer(self, piece: ToLocal, now: float) -> list[Output]:
        """Pass the answer on, and stop buffering."""
        self._commit()
        return super().receive_peer(piece, now)

    def receive_peer_eof(self, now: float) -> list[Output]:
        """Pass EOF on; it counts as an answer."""
        self._commit()
        return super().receive_peer_eof(now)

    def _commit_if_full(self) -> None:
        # The bytes are still sent, but they can no longer be sent again on another stream.
        if self.has_stream and self._size >= MAX_EARLY_BYTES:
            self._commit()

    def _commit(self) -> None:
        if not self.is_finished:
            self.is_finished = True
            self._kept.clear()
            self._size = 0
            self._on_committed()


# Prevents the debugged process from running programs on the laptop through the editor.
#
# A debugger may send requests to its editor. `runInTerminal` makes VS Code run a command. `startDebugging` starts a
# debug session with any configuration, which may launch a program or run a task. VS Code's debugpy extension handles
# the event `debugpyAttach` in the same way. An editor that attaches needs `startDebugging` and `debugpyAttach` only for
# child processes. Debugpy then sends the arguments of the editor's own `attach`, plus the child's process id.
#
#     runInTerminal, any other request      answered with a failed response
#     startDebugging, debugpyAttach         passed on if the configuration is the editor's own `attach` to the same
#     port,
#                                           with the id of a child process; otherwise refused. An editor that attached
#                                           without a port receives the local port instead of debugpy's port on the node
#     bytes that an editor might            the connection is aborted, because these bytes might contain a request
#     interpret differently
#
# This layer applies only to local programs that use DAP; other connections pass unchanged.

SUBPROCESS_EVENTS = frozenset({"debugpyAttach", "ptvsd_attach"})
"""Events whose body VS Code's debugpy extension uses as the configuration of a new debug session."""
ADDED_BY_DEBUGPY = frozenset({"name", "subProcessId", "connect", "request"})
"""Fields in which a child's configuration may differ from the arguments of the editor's `attach`."""
TASKS = frozenset({"preLaunchTask", "postDebugTask"})
"""Fields that make VS Code run a task before or after each session; debugpy removes them."""
LOOPBACK = ("127.0.0.1", "localhost", "::1")
_HEADER = re.compile(rb"Content-Length: ?[0-9]+\r\n\r\n")
"""The only header that all readers interpret alike; if there are two lengths, readers differ in which one they use."""
_REQUEST, _ATTACH, _ESCAPED = b'request"', b'ttach"', b"\\u00"
"""Every message that has to be checked contains at least one of these in its JSON, in which a letter may be written as
`\\u00` and two hexadecimal digits."""
_LENGTH = b"content-length"


class RequestGuard(Layer):
    """One editor's connection: the editor is the local program, the debugger is the peer.

    Args:
        port: The local port that the editor has connected to; None if the editor is listening.
        on_refused: Called with a sentence when a request is refused for the first time.
    """

    longest_local, longest_peer = MAX_PARSED, MAX_BODY
    local_names = frozenset({"attach"})

    def __init__(self, port: int | None, on_refused: Callable[[str], None]) -> None:
        self._port = port
        self._on_refused = on_refused
        self._attach: Mapping[str, object] | None = None
        """Arguments of the editor's `attach`."""
        self._tail = b""
        """The last forwarded bytes that were not DAP."""
        self._has_refused = False

    def __repr__(self) -> str:
        return f"<RequestGuard {'attached' if self._attach is not None else 'not attached'}>"

    def receive_local(self, piece: ToPeer, now: float) -> list[Output]:
        """Take a message from the editor, and record the arguments of its `attach`."""
        self.is_finished |= piece.is_foreign
        if (request := piece.request()) is not None and request["command"] == "attach":
            self._attach = arguments_of(request)
        return super().receive_local(piece, now)

    def receive_peer(self, piece: ToLocal, now: float) -> list[Output]:  # noqa: ARG002 - as in Layer
        """Take a message from the debugger; return what the editor may receive, or the response if it is refused."""
        if self.is_finished:
            return [piece]
        if self._is_safe(piece):
            return self._checked(piece)
        if piece.kind is Kind.CUT:  # an editor might find a whole message inside this part of one
            return []
        return [Abort("the debugger sent bytes that are not Debug Adapter Protocol messages")]

    def _is_safe(self, piece: ToLocal) -> bool:
        """True if an editor reads this piece as this layer does, or cannot find a message in it."""
        header = piece.header
        if piece.is_message and _HEADER.fullmatch(header):
            return len(header) < len(piece.data) and not self._tail
        return not self._may_be_message(piece.data)

    def _may_be_message(self, data: bytes) -> bool:
        """True if an editor might find a message in these bytes and the preceding non-DAP bytes."""
        seen = self._tail + data
        self._tail = seen[1 - len(_LENGTH) :]
        return _LENGTH in seen.lower()

    def _checked(self, piece: ToLocal) -> list[Output]:
        """Return a message that the editor may receive, or the response to a request that it may not receive."""
        body = piece.whole_body
        if not (_REQUEST in body or _ATTACH in body or _ESCAPED in body):
            return [piece]
        if (request := parse_as(body, "request")) is not None:
            return self._checked_request(request, piece)
        if (event := parse_as(body, "event")) is not None:
            return self._checked_event(event, piece) if event["event"] in SUBPROCESS_EVENTS else [piece]
        return [piece] if parse_as(body, "response") is not None else []

    def _checked_request(self, request: Request, piece: ToLocal) -> list[Output]:
        arguments = arguments_of(request)
        is_attach = request["command"] == "startDebugging" and arguments.get("request") == "attach"
        permitted = self._permitted(arguments.get("configuration")) if is_attach else None
        if permitted is not None:
            is_unchanged = permitted == arguments["configuration"]
            changed = {**arguments, "configuration": permitted}
            return [piece if is_unchanged else ToLocal.of({**request, "arguments": changed})]
        self._refused(f"request {request['command']!r}", arguments.get("configuration"))
        return [ToPeer.of(_failure(request))]

    def _checked_event(self, event: Event, piece: ToLocal) -> list[Output]:
        body = event.get("body")
        permitted = self._permitted(body) if isinstance(body, dict) and body.get("request") == "attach" else None
        if permitted is None:
            self._refused(f"event {event['event']!r}", body)
            return []
        return [piece if permitted == body else ToLocal.of({**event, "body": permitted})]

    def _permitted(self, configuration: object) -> dict[str, object] | None:
        """Return a child's configuration with its port, or None if its settings differ from the editor's `attach`."""
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

    def _refused(self, what: str, configuration: object) -> None:
        if self._has_refused:
            return
        self._has_refused = True
        child = configuration.get("subProcessId") if isinstance(configuration, dict) else None
        if isinstance(child, int):
            self._on_refused(
                f"child process {child} is not being debugged, because its settings differ from those of this session. "
                'hint: in the attach configuration, set "connect" to the port that relay-client has opened'
            )
        else:
            self._on_refused(f"refused {what} from the debugged process: it would start a program on this machine")


def _failure(request: Request) -> Response:
    """Return the response to a request that the editor does not receive."""
    reason = "refused by relay-client: a debugged process must not start programs on this machine"
    return {
        "seq": 0,
        "type": "response",
        "request_seq": request["seq"],
        "command": request["command"],
        "success": False,
        "message": reason,
    }


def _connect_of(own: Mapping[str, object]) -> Mapping[str, object]:
    """Return the address in an editor's `attach`: `connect` or, in the older form, the arguments `host` and `port`."""
    connect = own.get("connect")
    return connect if isinstance(connect, dict) else own


def _port_of(own: Mapping[str, object]) -> object:
    return _connect_of(own).get("port")


def _is_same_port(found: object, own: Mapping[str, object]) -> bool:
    """True if a child's `connect` equals the editor's; if the editor's has no host, debugpy adds a loopback host."""
    host = _connect_of(own).get("host")
    hosts = (host,) if host is not None else LOOPBACK
    if not isinstance(found, dict) or found.keys() != {"host", "port"}:
        return False
    return found["port"] == _port_of(own) and found["host"] in hosts
