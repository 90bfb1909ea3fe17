"""Messages between a process and the node's agent: one JSON object per line, over a stream socket.

    process -> agent                                     agent -> process
    {"register": {...}, "access": {...}, ...}  first     {"registered": PORT, "agent": PID}
    {"state": "waiting", "detail": "", "until": SECONDS} {"refused": SENTENCE, "hint": ...}   the socket is then closed
    {"answer": ID, ...}                                  {"ask": "arm" | "release" | ..., "id": ID, ...}
    {"leave": true, "error": ""}            last         {"listening": true}
                                                         {"unreachable": SENTENCE, "hint": ...}  the agent keeps trying
                                                         {"failed": SENTENCE, "hint": ...}       the agent then exits
                                                         {"notice": TEXT}
                                                         {"done": true}                          after a "leave"

Only this user can access the socket, so messages may contain connection strings. Unknown fields are ignored: agent and
process can have different versions if a job's environment is replaced while an agent is running.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Literal, TypedDict, cast, final

__all__ = [
    "MAX_LINE",
    "Access",
    "Answer",
    "AnswerFields",
    "Ask",
    "AskFields",
    "DumpRecord",
    "Message",
    "Registration",
    "StateChange",
    "TargetRecord",
    "decode",
    "encode",
]

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
    pid: int
    script: str
    cwd: str
    state: str
    detail: str
    since: float
    until: float | None


class DumpRecord(TypedDict):
    """How to request the stacks of a process by signal; see `relay_agent.stacks.out_of_process.Dump`."""

    path: str
    signal: int


# Process -> agent:


@final
class Registration(TypedDict):
    """The first message; the agent answers `Registered` or `Refused`."""

    register: TargetRecord
    access: Access
    forwards: list[int]
    event_directories: list[str]
    """Directories whose TensorBoard event files clients may read; absolute paths."""
    monitor: float | None
    """Seconds between two samples of the monitor; None if the process does not request a monitor."""
    metrics: list[Any] | None
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
    until: float | None
    """Unix seconds."""


class AnswerFields(TypedDict, total=False):
    """The fields of an answer: the field for the request that it answers, or `error` and `hint`."""

    port: int
    """In the answer to `arm`: the port on which debugpy's adapter is listening."""
    threads: Sequence[object]
    """In the answer to `stacks`: as `relay_core.agent_api.stacks.ThreadStack` encodes them."""
    collectives: object
    """In the answer to `collectives`: as `relay_core.agent_api.collectives.ProcessCollectives` encodes it."""
    allocator: Sequence[object] | None
    """In the answer to `allocator`: as `relay_core.agent_api.resources.usage.AllocatorUsage` encodes it."""
    value: object
    """In the answer to `evaluate`: as `relay_core.agent_api.evaluation.Value` encodes it."""
    pushed: object
    """In the answer to `push`: as `relay_core.agent_api.push.Pushed` encodes it."""
    peer_timeout: float | None
    """In the answer to `timeouts`: for how many seconds other ranks wait in an operation; None if it is unknown, or as
    long as a debugging session."""
    busy: bool
    """In the answer to `check`: whether the debugger is executing something in a stopped thread."""
    error: str
    hint: str


@final
class Answer(AnswerFields):
    """The answer to the `Ask` with this number."""

    answer: int


@final
class Leave(TypedDict):
    """The process is about to exit; the agent answers `Done` when the debugger has received the last bytes."""

    leave: Literal[True]
    error: str
    """Its uncaught exception in one line, or ""."""


@final
class Ping(TypedDict):
    """Asks whether the agent is alive: the connection to an agent that is being killed may still be open."""

    ping: Literal[True]


# Agent -> process:


@final
class Registered(TypedDict):
    """The registration was accepted."""

    registered: int
    """The logical port of the process."""
    agent: int
    """Process id of the agent."""


@final
class Refused(TypedDict):
    """The registration was refused, because another process has the port, or because the port is invalid.

    The agent then closes the connection.
    """

    refused: str
    hint: str


class AskFields(TypedDict, total=False):
    """The arguments of an `Ask`."""

    locals: bool
    """For `stacks`: whether to include local variables."""
    port: int
    """For `connect`: the port of this machine to connect to."""
    body: object
    """For `evaluate` and `push`: as `Evaluate` and `Push` in `relay_core.agent_api` encode it."""
    user: str
    """For `push`: the user who sent it."""
    held: bool
    """For `timeouts`: whether a rank of the job is held."""
    registered: list[int]
    """For `arm` and `connect`: the process ids of all registered processes, as these processes sent them."""


@final
class Ask(AskFields):
    """A request to the process. All requests except `release` require an answer."""

    ask: str
    """`arm`, `release`, `timeouts`, `stacks`, `collectives`, `allocator`, `evaluate`, `push`, `connect` or `check`."""
    id: int


@final
class Listening(TypedDict):
    """The agent is listening on the hybrid connection."""

    listening: Literal[True]


@final
class Unreachable(TypedDict):
    """The agent has not reached the relay for a while; it keeps trying, and `Listening` may follow."""

    unreachable: str
    hint: str


@final
class Failed(TypedDict):
    """The agent cannot listen, and exits."""

    failed: str
    hint: str


@final
class Notice(TypedDict):
    """A line for the job's log."""

    notice: str


@final
class Done(TypedDict):
    """The answer to `Leave`: the process can exit."""

    done: Literal[True]


@final
class Pong(TypedDict):
    """The answer to `Ping`."""

    pong: Literal[True]


Message = (
    Registration
    | StateChange
    | Answer
    | Leave
    | Ping
    | Registered
    | Refused
    | Ask
    | Listening
    | Unreachable
    | Failed
    | Notice
    | Done
    | Pong
)


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
