"""Layers of a local port: the first bytes of a program, kept to be sent again, and a guard for requests of the job."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TypeGuard

from relay_client.editor.allowed_messages import allowed_event, allowed_failure, is_success, without_remote_paths
from relay_client.editor.messages import make_failure
from relay_core.dap.framing import MAX_BODY
from relay_core.dap.messages import Arguments, Event, Message, Request, Response, arguments_of
from relay_core.foreign import configuration_name, has_variable, notification, printable
from relay_core.layers.layer import Abort, EndPeer, Layer, Output, ToLocal, ToPeer
from relay_core.layers.piece import MAX_PARSED, Kind

MAX_EARLY_BYTES = 256 * 1024
"""Maximum number of bytes buffered before the first answer; if there are more, no other stream can be tried."""


class EarlyBytes(Layer):
    """The buffer of one local connection. When started on another stream, it sends the buffered bytes again.

    Args:
        on_committed: Called when the peer has answered or the buffer is full; from then on, the connection stays on
            this stream.
        on_first: Called with the first bytes.
    """

    def __init__(self, on_committed: Callable[[], None], on_first: Callable[[bytes], object]) -> None:
        self.has_stream = False
        """False while the bytes have to wait for a stream, for example for the first one. In this state, the buffer is
        never dropped, and the owner limits its size."""
        self._kept: list[ToPeer] = []
        self._size = 0
        """Number of buffered bytes."""
        self._on_committed = on_committed
        self._on_first = on_first

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


# Prevents the debugged process from using the editor for anything but debugging.
#
# A debugger may send requests to its editor. `runInTerminal` makes VS Code run a command. `startDebugging` starts a
# debug session with any configuration, which may launch a program or run a task. VS Code's debugpy extension handles
# the event `debugpyAttach` in the same way. And VS Code replaces variables in every key and text of such a
# configuration: `${command:ID}` runs a command, `${env:NAME}` sends a variable of the laptop to the job. An editor that
# attaches needs `startDebugging` and `debugpyAttach` only for child processes. Debugpy then sends the arguments of the
# editor's own `attach`, plus the child's process id.
#
#     runInTerminal, any other request      answered with a failed response
#     startDebugging, debugpyAttach         if the configuration is the editor's own `attach` to the same port, with
#                                           the id of a child process, the editor receives a configuration that is
#                                           made here, of what it has sent itself; nothing in it is from the debugger
#                                           but the number of the process. Otherwise refused, also if the editor's own
#                                           values contain a variable, which it would replace a second time. An editor
#                                           that attached without a port receives the local port instead of debugpy's
#                                           port on the node
#     events, failed responses              the fields that `allowed` lists
#     successful responses                  passed on, without paths of other machines; like events, those that are
#                                           parsed are written again, because in some editors (Emacs) the first of
#                                           two equal fields counts, not the last
#     bytes that editors read differently   the connection is aborted, because these bytes might contain a request
#
# This layer applies only to local programs that use DAP; other connections pass unchanged. To an editor that listens,
# no child process is offered: the adapter beside the editor does that.

SUBPROCESS_EVENTS = frozenset({"debugpyAttach", "ptvsd_attach"})
"""Events whose body VS Code's debugpy extension uses as the configuration of a new debug session."""
ADDED_BY_DEBUGPY = frozenset({"name", "subProcessId", "connect", "request"})
"""Fields in which a child's configuration may differ from the arguments of the editor's `attach`."""
TASKS = frozenset({"preLaunchTask", "postDebugTask"})
"""Fields that make VS Code run a task before or after each session."""
NOT_OF_CHILD = (
    ADDED_BY_DEBUGPY | TASKS | {"processId", "processName", "listen", "restart", "args", "pythonArgs", "host", "port"}
)
"""Fields of the editor's `attach` that debugpy removes from a child's configuration, or sets there."""
MAX_CHECKED = 4 * 1024 * 1024
"""Bytes of a message that is parsed and written again, which takes up to 0.2 s, during which other sessions wait;
successful responses are usually recognized without that, whatever their length."""
LOOPBACK = ("127.0.0.1", "localhost", "::1")
MAX_PID = 2**32
_HEADER = re.compile(rb"Content-Length: ?[0-9]+\r\n\r\n")
"""The only header that all readers interpret alike; if there are two lengths, readers differ in which one they use."""
_LENGTH = b"content-length"


class RequestGuard(Layer):
    """One editor's connection: the editor is the local program, the debugger is the peer.

    Args:
        port: The local port that the editor has connected to; None if the editor is listening.
        on_refused: Called with a sentence when a request, or an event, is refused for the first time.
        sent: Returns the arguments of `attach` as the editor has sent them, if those that pass here may contain more.
    """

    longest_local, longest_peer = MAX_PARSED, MAX_BODY
    local_names = frozenset({"attach"})

    def __init__(
        self, port: int | None, on_refused: Callable[[str], None], sent: Callable[[], Arguments | None] = lambda: None
    ) -> None:
        self._port = port
        self._on_refused = on_refused
        self._sent = sent
        self._attach: Arguments | None = None
        """Arguments of `attach` as the debugger has received them."""
        self._tail = b""
        """The last forwarded bytes that were not DAP."""
        self._refused: set[str] = set()
        """Kinds of messages of which one was refused."""

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
        if piece.kind is Kind.BROKEN:  # an editor might find a message where this layer has lost the framing
            return False
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
        """Return a message as the editor may receive it, or the response to a request that it may not receive."""
        if not piece.is_message or is_success(piece.data):
            return [piece]
        if len(piece.data) > MAX_CHECKED:
            if piece.type == "response":
                failed: Response = {"type": "response", "request_seq": piece.request_seq, "command": piece.name}
                return _written(allowed_failure({**failed, "message": TOO_LONG}))
            self._say("length", f"a message of the debugger is not passed to the editor: {TOO_LONG}")
            return []
        if (event := piece.event(any_length=True)) is not None:
            return self._checked_event(event, piece)
        if (response := piece.response(any_length=True)) is not None:
            is_passed = response.get("success") is True
            return _written(response if is_passed else allowed_failure(response), paths=not is_passed)
        return self._checked_request(request) if (request := piece.request()) is not None else []

    def _checked_request(self, request: Request) -> list[Output]:
        arguments = arguments_of(request)
        is_attach = request["command"] == "startDebugging" and arguments.get("request") == "attach"
        child = self._child(arguments.get("configuration")) if is_attach else None
        if child is None:
            self._refuse(f"request '{printable(request['command'])}'", arguments.get("configuration"))
            return [ToPeer.of({**make_failure(request, REFUSAL), "seq": 0})]
        made: Request = {"seq": request["seq"], "type": "request", "command": "startDebugging"}
        return _written({**made, "arguments": {"request": "attach", "configuration": child}})

    def _checked_event(self, event: Event, piece: ToLocal) -> list[Output]:
        if event["event"] not in SUBPROCESS_EVENTS:
            if (allowed := allowed_event(event)) is not None:
                return _written(allowed)
            name = printable(event["event"], 60)
            self._say("event", f"the debugger's event '{name}' is not passed to the editor, because it is unknown")
            return []
        body = event.get("body")
        child = self._child(body) if isinstance(body, dict) and body.get("request") == "attach" else None
        if child is None:
            self._refuse(f"event '{event['event']}'", body)
            return []
        return _written({"seq": piece.seq, "type": "event", "event": event["event"], "body": child})

    def _child(self, found: object) -> dict[str, object] | None:
        """Return the configuration for a child process, made of the editor's `attach`; None if it is refused.

        Args:
            found: The configuration that the debugger has sent.
        """
        if self._port is None or self._attach is None or not isinstance(found, dict):
            return None
        pid, connect = found.get("subProcessId"), self._connect(found)
        if connect is None or not _is_pid(pid) or not _is_own(found, self._attach):
            return None
        own = self._sent() or self._attach
        others = {name: value for name, value in own.items() if name not in NOT_OF_CHILD}
        if has_variable([others, connect]):
            self._say("request", f"child process {pid} is not being debugged, because {VARIABLE}")
            return None
        others |= {"request": "attach"} if "request" in found else {}
        return {**others, "name": configuration_name(own.get("name"), pid), "subProcessId": pid, "connect": connect}

    def _connect(self, found: Mapping[str, object]) -> dict[str, object] | None:
        """Return the address to which the editor connects for a child process; None if the debugger names another."""
        own = self._attach or {}
        if (port := _connect_of(own).get("port")) is None:
            return {"host": LOOPBACK[0], "port": self._port}
        connect = found.get("connect")
        return {"host": connect["host"], "port": port} if _is_same_port(connect, own) else None

    def _refuse(self, what: str, configuration: object) -> None:
        pid = configuration.get("subProcessId") if isinstance(configuration, dict) else None
        if _is_pid(pid):
            self._say("request", f"child process {pid} is not being debugged, because {DIFFERENT}")
        else:
            self._say("request", f"refused {what} from the debugged process: it would start a program on this machine")

    def _say(self, kind: str, text: str) -> None:
        """Report that a message was refused, once for each kind."""
        if kind not in self._refused:
            self._refused.add(kind)
            self._on_refused(text)


DIFFERENT = (
    'its settings differ from those of this session. hint: in the attach configuration, set "connect" to the port that '
    "relay-client has opened"
)
VARIABLE = "the attach configuration contains '${', which the editor would replace again. hint: remove '${' from it"
TOO_LONG = f"it is longer than {MAX_CHECKED // 1024**2} MiB and would take too long to check"
REFUSAL = notification("refused by relay-client: a debugged process must not start programs on this machine")


def _written(message: Message, *, paths: bool = True) -> list[Output]:
    """Return a message written anew; nothing if it is nested too deeply for that.

    Args:
        message: The message.
        paths: Whether paths of other machines stay, because the message was made here.
    """
    try:
        piece = ToLocal.of(message)
    except RecursionError:
        return []
    data = piece.data if paths else without_remote_paths(piece.data)
    return [piece if data == piece.data else ToLocal(data, Kind.MESSAGE, len(piece.header))]


def _is_pid(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value < MAX_PID


def _is_own(found: Mapping[str, object], own: Arguments) -> bool:
    """True if a child's configuration equals the `attach` that the debugger has received, but for debugpy's fields."""
    others = {name: value for name, value in found.items() if name not in ADDED_BY_DEBUGPY}
    is_attach = found.get("request", "attach") == "attach" and isinstance(found.get("name"), str)
    return is_attach and not TASKS & others.keys() and all(name in own and own[name] == others[name] for name in others)


def _connect_of(own: Mapping[str, object]) -> Mapping[str, object]:
    """Return the address in an editor's `attach`: `connect` or, in the older form, the arguments `host` and `port`."""
    connect = own.get("connect")
    return connect if isinstance(connect, dict) else own


def _is_same_port(found: object, own: Mapping[str, object]) -> TypeGuard[Mapping[str, object]]:
    """True if a child's `connect` equals the editor's; if the editor's has no host, debugpy adds a loopback host."""
    host = _connect_of(own).get("host")
    hosts = (host,) if host is not None else LOOPBACK
    if not isinstance(found, dict) or found.keys() != {"host", "port"}:
        return False
    return found["port"] == _connect_of(own).get("port") and found["host"] in hosts
