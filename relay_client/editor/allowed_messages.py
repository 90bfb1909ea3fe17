"""What an editor receives of a debugger's events and failed responses: the fields listed here, and no others. No I/O.

A debugger is part of the job, and an editor acts on what it sends: it opens notifications with links and buttons,
restarts sessions with data of the debugger, and may read fields that are unknown here. So an event passes only
if it is in `EVENTS`, with the fields that are listed there; texts that an editor interprets are made fit for it by the
rules in `relay_core.foreign`. The lists are those of the specification
(https://microsoft.github.io/debug-adapter-protocol/specification#Events), and debugpy's own events.

    output           never `console`, to which VS Code gives another color, or `important`, which it shows as a
                     notification: these are relay-client's own categories, so no line of the job looks like one of them
    progress...      VS Code shows title and message as a notification
    terminated       `restart` passes only as true: VS Code puts it into the configuration of the next session
    failed response  the reason, and `error.format` with its variables filled in. VS Code shows them in a notification
                     or a dialog, in which `url` and `urlLabel` would be a button that runs a command

Successful responses pass as they are, but for a path that leads to another machine: at each stop, editors open the path
of the top frame, VS Code with the extension that provides the scheme of a URI, Emacs by `ssh`. Most of the bytes of a
session are in them, so they are recognized without parsing (`is_success`); all other messages are parsed. If a field
occurs twice, the last one counts here, as in `JSON.parse`. In Emacs the first one counts, so what is parsed is written
again, with each field once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from relay_core import foreign
from relay_core.dap.messages import Body, Event, Response

_DROPPED = object()
Rule = Callable[[object], object]
"""Returns what the editor receives as a field, or `_DROPPED`."""


def _value(value: object) -> object:
    return _DROPPED if isinstance(value, dict) else value


def _text(rule: Callable[[str], str]) -> Rule:
    return lambda value: rule(value) if isinstance(value, str) else _DROPPED


def _fields(names: str, **rules: Rule) -> Mapping[str, Rule]:
    return {**dict.fromkeys(names.split(), _value), **rules}


def _object(fields: Mapping[str, Rule]) -> Rule:
    return lambda value: _filtered(value, fields) if isinstance(value, dict) else _DROPPED


def _filtered(body: Mapping[str, object], fields: Mapping[str, Rule]) -> Body:
    allowed = {name: fields[name](value) for name, value in body.items() if name in fields}
    return {name: value for name, value in allowed.items() if value is not _DROPPED}


def _path(value: object) -> object:
    return _DROPPED if isinstance(value, dict) or foreign.is_remote_path(value) else value


_SOURCE = _object(_fields("name sourceReference presentationHint origin", path=_path))
_PLACE = _fields("line column endLine endColumn instructionReference offset", source=_SOURCE)
_BREAKPOINT = _object({**_fields("id verified message reason"), **_PLACE})
_MODULE = _object(
    _fields("id name path isOptimized isUserCode version symbolStatus symbolFilePath dateTimeStamp addressRange")
)
_OUTPUT = {
    "output": _text(foreign.console_output),
    "source": _SOURCE,
    "data": _object(_fields("packageVersion snapshot")),
}
"""`data` is that of debugpy's telemetry, or a snapshot, which the extension reads."""
_NOTIFIED = _text(foreign.notification)

EVENTS: Mapping[str, Mapping[str, Rule]] = {
    "initialized": {},
    "stopped": _fields("reason description threadId preserveFocusHint text allThreadsStopped hitBreakpointIds"),
    "continued": _fields("threadId allThreadsContinued"),
    "exited": _fields("exitCode pydevdReason"),  # the adapter beside an editor that listens reads the reason
    "terminated": {"restart": lambda value: True if value is True else _DROPPED},
    "thread": _fields("reason threadId"),
    "output": _fields("category group variablesReference line column locationReference", **_OUTPUT),
    "breakpoint": _fields("reason", breakpoint=_BREAKPOINT),
    "module": _fields("reason", module=_MODULE),
    "loadedSource": _fields("reason", source=_SOURCE),
    "process": _fields("name systemProcessId isLocalProcess startMethod pointerSize"),
    "capabilities": {"capabilities": lambda value: value},  # the names are open; VS Code reads flags and labels
    "progressStart": _fields("progressId requestId cancellable percentage", title=_NOTIFIED, message=_NOTIFIED),
    "progressUpdate": _fields("progressId percentage", message=_NOTIFIED),
    "progressEnd": _fields("progressId", message=_NOTIFIED),
    "invalidated": _fields("areas threadId stackFrameId"),
    "memory": _fields("memoryReference offset count"),
    # debugpy's own:
    "debugpySockets": _fields("sockets"),
    "debugpyWaitingForServer": _fields("host port"),
    "pydevdInputRequested": {},
}
"""The fields of each event, with the rule for each. Editors receive `debugpyAttach` as `RequestGuard` makes it."""
STDOUT = "stdout"
_CATEGORIES = frozenset({STDOUT, "stderr", "telemetry"})
_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")


def allowed_event(event: Event) -> Event | None:
    """Return an event as the editor receives it; None if it is not in the table."""
    name, body = event["event"], event.get("body")
    if (fields := EVENTS.get(name)) is None:
        return None
    allowed = _filtered(body, fields) if isinstance(body, dict) else {}
    if name == "output":
        category = allowed.get("category")
        if not isinstance(category, str) or category not in _CATEGORIES:
            allowed["category"] = STDOUT
    made: Event = {"seq": _number(event.get("seq")), "type": "event", "event": name}
    return {**made, "body": allowed} if "body" in event else made


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0


def without_remote_paths(data: bytes) -> bytes:
    """Return a message that was written here without paths that lead to another machine: their keys are changed.

    By an expression, because a visit of all objects in a long message would stop other sessions for seconds.
    """
    return _REMOTE_PATH.sub(b'"gone"', data)


def allowed_failure(response: Response) -> Response:
    """Return a failed response as the editor receives it: with the reason, without links and buttons."""
    made: Response = {"seq": _number(response.get("seq")), "type": "response", "request_seq": response["request_seq"]}
    made |= {"success": False, "command": str(response.get("command"))[:60]}
    if isinstance(message := response.get("message"), str):
        made["message"] = foreign.failure(message)
    match response.get("body"):
        case {"error": {"format": str(text), **error}}:
            reason = foreign.message_format(_filled(text, error.get("variables")))
            made["body"] = {"error": {"id": _number(error.get("id")), "format": reason}}
    return made


def _filled(text: str, variables: object) -> str:
    """Return a format with its variables, each of limited length, because a short format may name one many times."""
    known = variables if isinstance(variables, dict) else {}

    def value(found: re.Match[str]) -> str:
        named = known.get(found[1])
        return named[: foreign.MAX_TEXT] if isinstance(named, str) else found[0]

    return _PLACEHOLDER.sub(value, text[: foreign.MAX_FAILURE])


# A successful response, recognized by its bytes: the first fields, in any order, without another `success`, and without
# what an event or a request needs. Any occurrence of a field may count, and a letter may be written as `\u00` and two
# hexadecimal digits, so each of these may be anywhere in the message.

_SUCCESS = re.compile(
    rb'Content-Length: ?[0-9]+\r\n\r\n\s*\{\s*(?:"(?:seq|request_seq)"\s*:\s*[0-9]{1,18}\s*,\s*'
    rb'|"type"\s*:\s*"response"\s*,\s*|"command"\s*:\s*"[A-Za-z]{1,60}"\s*,\s*){0,4}"success"\s*:\s*true\s*[,}]'
)
_REMOTE_PATH = re.compile(rb'"path"(?=\s*:\s*"(?:[A-Za-z][A-Za-z0-9+.-]+:|\\?/[A-Za-z0-9-]+:|(?:\\?/|\\\\){2}))')
"""The key of such a path; in a text, a quotation mark would follow a backslash."""
_OTHERS = (b'request"', b'event"', b"\\u00")


def is_success(data: bytes) -> bool:
    """Return whether a message is a successful response for every reader, without a path that leads elsewhere.

    False if it has to be parsed to know.
    """
    if _SUCCESS.match(data) is None or any(part in data for part in _OTHERS):
        return False
    return data.count(b'success"') == 1 and _REMOTE_PATH.search(data) is None
