"""Messages between a process and the node's agent: one JSON object per line, over a stream socket.

    process -> agent                                     agent -> process
    {"register": {...}, "access": {...}, ...}  first     {"registered": PORT, "agent": PID}
    {"state": "waiting", "detail": "", "until": SECONDS} {"refused": SENTENCE, "hint": ...}      the socket then ends
    {"answer": ID, ...}                                  {"ask": "arm" | "release" | ..., "id": ID, ...}
    {"leave": true}                         last         {"listening": true}
                                                         {"failed": SENTENCE, "hint": ...}       the agent then ends
                                                         {"notice": TEXT}
                                                         {"done": true}                          after a "leave"

The socket lies where only this user can reach it, so connection strings may pass. Unknown fields are skipped: agent and
process may be of different versions when a job's environment is replaced under a running agent.
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
"""Bytes; the stacks of a process with a thousand threads fit."""

Access = dict[str, Any]
"""What the agent needs in order to listen: the fields of `relay_core.auth.AccessSettings`, and `ca_file`."""


class TargetRecord(TypedDict, total=False):
    """A process, as `relay_core.agent_api.announcement.TargetInfo` parses it, and what it knows of its node.

    A job writes this record and not the dataclass, whose import would cost it 10 ms.
    """

    port: int
    rank: int
    world: int | None
    node_rank: int | None
    run: str | None
    pid: int
    script: str
    state: str
    detail: str
    since: float
    until: float | None


class DumpRecord(TypedDict):
    """How a process can be asked for its stacks by signal; see `relay_agent.stacks.out_of_process.Dump`."""

    path: str
    signal: int


# Process -> agent:


@final
class Registration(TypedDict):
    """The first message; the agent answers `Registered` or `Refused`."""

    register: TargetRecord
    access: Access
    forwards: list[int]
    dump: DumpRecord | None


@final
class StateChange(TypedDict):
    """What the process is doing from now on."""

    state: str
    detail: str
    until: float | None
    """Unix seconds."""


class AnswerFields(TypedDict, total=False):
    """What a process answers: `port` to `arm`, `threads` to `stacks`, or why it cannot."""

    port: int
    """Where debugpy's adapter listens."""
    threads: Sequence[object]
    """As `relay_core.agent_api.stacks.ThreadStack` encodes them."""
    error: str
    hint: str


@final
class Answer(AnswerFields):
    """The answer to an `Ask`, by its number."""

    answer: int


@final
class Leave(TypedDict):
    """The process ends; the agent answers `Done` when its debugger has read the last bytes."""

    leave: Literal[True]


# Agent -> process:


@final
class Registered(TypedDict):
    """The process can be debugged."""

    registered: int
    """Its logical port."""
    agent: int
    """Process id of the agent."""


@final
class Refused(TypedDict):
    """Another process has the port; the socket then ends."""

    refused: str
    hint: str


class AskFields(TypedDict, total=False):
    """The arguments of an `Ask`."""

    locals: bool
    """For `stacks`: whether variables are wanted too."""
    port: int
    """For `connect`: where the editor is reached."""


@final
class Ask(AskFields):
    """A request to the process. Only `release` needs no answer."""

    ask: str
    """`arm`, `release`, `stacks` or `connect`."""
    id: int


@final
class Listening(TypedDict):
    """The relay has accepted the agent."""

    listening: Literal[True]


@final
class Failed(TypedDict):
    """The agent cannot listen, and ends."""

    failed: str
    hint: str


@final
class Notice(TypedDict):
    """A line for the job's log."""

    notice: str


@final
class Done(TypedDict):
    """The process may end."""

    done: Literal[True]


Message = Registration | StateChange | Answer | Leave | Registered | Refused | Ask | Listening | Failed | Notice | Done


def encode(message: Message) -> bytes:
    """Return a message as a line."""
    return json.dumps(message, separators=(",", ":"), default=str).encode() + b"\n"


def decode(line: bytes) -> Message:
    """Read a line; anything but a JSON object becomes an empty message, which is ignored.

    The fields are not checked: only processes of this user can write to the socket.
    """
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        message = None
    return cast("Message", message if isinstance(message, dict) else {})
