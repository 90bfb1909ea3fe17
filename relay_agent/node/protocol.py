"""Messages between a process and the node's agent: one JSON object per line, over a stream socket.

    process -> agent                                     agent -> process
    {"register": {...}, "access": {...}, ...}  first     {"registered": PORT, "agent": PID}
    {"state": "waiting", "detail": "", "place": "", "until": SECONDS}
                                                         {"refused": SENTENCE, "hint": ...}   the socket is then closed
    {"answer": ID, "result": RESULT}                     {"ask": NAME, "id": ID, "body": {...}}
    {"answer": ID, "error": SENTENCE, "hint": ...}       {"listening": true}
    {"leave": true, "error": ""}            last         {"unreachable": SENTENCE, "hint": ...}  the agent keeps trying
                                                         {"failed": SENTENCE, "hint": ...}       the agent then exits
                                                         {"notice": TEXT}
                                                         {"done": true}                          after a "leave"

The names, arguments and results of the agent's requests are those of `relay_agent.debuggee.answers`.

Only this user can access the socket, so messages may contain connection strings. Unknown fields are ignored: agent and
process can have different versions if a job's environment is replaced while an agent is running.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict, cast, final

from relay_agent.job.gevent_originals import json

MAX_LINE = 4 * 1024 * 1024
"""Maximum length in bytes: enough for the stacks of a process with a thousand threads."""

Access = dict[str, Any]
"""Settings for the agent's listener: the fields of `relay_core.auth.AccessSettings` that are set.

In a local run, they contain only the field `LOCAL_RUN` of `relay_agent.settings.environment`, and the agent does not
listen."""


class TargetRecord(TypedDict, total=False):
    """The announcement of a process, as `relay_core.agent_api.announcement.TargetInfo` parses it, and data on its node.

    A job uses this record instead of the dataclass, because importing the dataclass takes 10 ms.
    """

    port: int
    rank: int
    world: int | None
    node_rank: int | None
    run: str | None
    launched: bool
    """Whether a launcher has given the process its own rank."""
    on_crash: bool
    """Whether the process is held at its first uncaught exception."""
    pid: int
    script: str
    cwd: str
    state: str
    detail: str
    place: str
    since: float
    until: float | None


class DumpRecord(TypedDict):
    """How to request the stacks of a process by signal; see `relay_agent.stacks.out_of_process.Dump`."""

    path: str
    signal: int


# Process -> agent:


@final
class Registration(TypedDict):
    """The first message; the agent answers `Registered`, or `Obstacle` with `refused`."""

    register: TargetRecord
    access: Access
    forwards: Sequence[int]
    event_directories: list[str]
    """Directories whose TensorBoard event files clients may read; absolute paths."""
    monitor: float | None
    """Seconds between two samples of the monitor; None if the process does not request a monitor."""
    metrics: tuple[str, int] | None
    """Host and port at which the monitor serves its samples to Prometheus."""
    outputs: str
    """Directory for the files of the monitor."""
    dump: DumpRecord | None
    sources: dict[str, str]
    """Digests of the files whose code was replaced, by path."""


@final
class StateChange(TypedDict):
    """A new state of the process."""

    state: str
    detail: str
    place: str
    until: float | None
    """Unix seconds."""


@final
class Answer(TypedDict, total=False):
    """The answer to the `Ask` with a number: besides this, `result`, or `error` and `hint`."""

    answer: int
    result: Any
    error: str
    hint: str


@final
class Leave(TypedDict):
    """The process is about to exit; the agent answers `done` when the debugger has received the last bytes."""

    leave: Literal[True]
    error: str
    """Its uncaught exception in one line, or ""."""


# Agent -> process:


@final
class Registered(TypedDict):
    """The registration was accepted."""

    registered: int
    """The logical port of the process."""
    agent: int
    """Process id of the agent."""


@final
class Obstacle(TypedDict, total=False):
    """Why the process cannot be debugged, at least at the moment: one of the fields, and `hint`."""

    refused: str
    """Another process has the port, or the port is invalid. The agent then closes the connection."""
    unreachable: str
    """The agent has not reached the relay for a while; it keeps trying, and may listen later."""
    failed: str
    """The agent cannot listen, and exits."""
    hint: str


@final
class Ask(TypedDict):
    """A request to the process. All requests except `release` require an answer."""

    ask: str
    """One of `relay_agent.debuggee.answers.ANSWERS`."""
    id: int
    body: Mapping[str, object]
    """The arguments."""


@final
class Notice(TypedDict):
    """A line for the job's log."""

    notice: str


# Process -> agent (`ping`), and agent -> process:


@final
class Signal(TypedDict, total=False):
    """A message without content; it has one of the fields."""

    ping: Literal[True]
    """Asks whether the agent is alive: the connection to an agent that is being killed may still be open."""
    pong: Literal[True]
    """The answer to `ping`."""
    listening: Literal[True]
    """The agent is listening on the hybrid connection."""
    done: Literal[True]
    """The answer to `Leave`: the process can exit."""


Message = Registration | StateChange | Answer | Leave | Registered | Obstacle | Ask | Notice | Signal


def encode(message: Message) -> bytes:
    """Encode a message as a line of JSON."""
    return json.dumps(message, separators=(",", ":"), default=str).encode() + b"\n"


def decode(line: bytes) -> Message:
    """Decode a line; anything other than a JSON object is returned as an empty message, which the callers ignore.

    The fields are not validated, because only processes of this user can write to the socket.
    """
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        message = None
    return cast("Message", message if isinstance(message, dict) else {})
