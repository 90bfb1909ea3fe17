"""What this process answers to the requests of its node's agent: one row in `ANSWERS` for each request.

A handler runs in the helper thread and imports what it needs when it is called, because nothing may be imported in the
job before somebody debugs it.
"""

from __future__ import annotations

import functools
import importlib
import os
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from relay_agent.debuggee.debugger import debugger
from relay_agent.debuggee.pydevd_patches import stopped_threads
from relay_agent.debuggee.unreached import children
from relay_agent.job.collective_timeouts import peer_timeout, raise_while_held
from relay_agent.monitor.allocator import read_allocator
from relay_agent.settings.environment import REGISTERED
from relay_core.foreign import escape_controls

if TYPE_CHECKING:
    from types import FrameType

    from relay_agent.node.in_job.client import NodeClient
    from relay_agent.settings.model import DebugSettings
    from relay_core.agent_api.questions import Environment, ReadEnvironment

Body = Mapping[str, Any]
"""The arguments of a request."""
Respond = Callable[[object], None]
"""Sends the result of a request that takes time, from any thread."""


class Process(Protocol):
    """The process that is being debugged, as far as its answers depend on it."""

    settings: DebugSettings
    port: int
    node_client: NodeClient
    agent_of_debugger: int

    def log(self, text: str) -> None:
        """Write a line to the job's stderr."""

    def hold_at(self, frame: FrameType, cause: str, seconds: float, *, is_before_line: bool) -> bool:
        """Wait for a debugger, and stop in the frame."""


def _arm(process: Process, body: Body) -> int:
    """Return the port on which debugpy's adapter is listening."""
    children.set_registered(body.get("registered", ()))
    process.agent_of_debugger = process.node_client.connections
    return debugger.arm(follow_children=process.settings.follow_children)


def _connect(process: Process, body: Body) -> None:
    children.set_registered(body.get("registered", ()))
    process.agent_of_debugger = process.node_client.connections
    debugger.connect(body["port"], follow_children=process.settings.follow_children)


def _timeouts(process: Process, body: Body) -> float | None:
    """Raise the timeouts of collective operations, or restore them, unless the settings determine them.

    Return for how many seconds other ranks wait in an operation while the job is held; None if it is unknown, or as
    long as a debugging session.
    """
    is_held = body.get("held", False)
    if process.settings.timeouts is None:
        raise_while_held(is_held=is_held)
    return peer_timeout() if is_held else None


def _push(process: Process, body: Body) -> object:
    """Start a phase of a push."""
    if not process.settings.allow_edit:
        return {"is_refused": True}
    from relay_agent.push.in_process import start_phase  # noqa: PLC0415 - needed for this request only
    from relay_core.agent_api.push import LEASE, Phase, Push, Pushed  # noqa: PLC0415
    from relay_core.records import encode, parse  # noqa: PLC0415

    request = parse(Push, body)
    trigger = sys.modules.get("relay_agent.trigger.table")
    if trigger is not None:
        trigger.watches.pause(request.id, request.seconds + LEASE)

    def start(respond: Respond) -> None:
        def finished(result: Pushed) -> None:
            if result.digest:
                process.node_client.source_replaced(result.file, result.digest)
                process.log(escape_controls(f"{request.user} replaced the code in {result.file} ({result.summary})"))
            respond(encode(result))
            if trigger is not None and (result.error or request.phase in {Phase.COMMIT, Phase.ABORT}):
                trigger.watches.resume(request.id)

        start_phase(request, finished, is_armed=debugger.is_armed)

    return start


def _watch(process: Process, body: Body) -> object:
    """Answer with the hits of a watch, when there are any."""
    from relay_agent.trigger.table import Job, start_answer  # noqa: PLC0415 - needed for this request only
    from relay_core.agent_api.watch import Watch  # noqa: PLC0415
    from relay_core.records import encode, parse  # noqa: PLC0415

    question = parse(Watch, body)

    def hold(frame: FrameType) -> None:
        process.hold_at(frame, "watch", process.settings.hold, is_before_line=True)

    job = Job(lambda text: process.log(escape_controls(text)), hold)
    return lambda respond: start_answer(question, process.port, job, lambda watched: respond(encode(watched)))


MAX_VARIABLES = 1000
MAX_VALUE = 4096
"""Maximum number of characters of a value; the rest is replaced by "..."."""
MAX_CHARACTERS = 256 * 1024
"""Maximum number of characters of all names and values: JSON encodes a character as up to twelve bytes, and a message
to the agent is at most 4 MiB long."""


def read_environment(_question: ReadEnvironment) -> Environment:
    """Return the environment variables as they are now, in the order of their names, without secrets.

    The variable that a process sets when it registers is left out: it differs between ranks in any job.
    """
    from relay_agent.values.secrets import HIDDEN, is_secret  # noqa: PLC0415 - needed for this question only
    from relay_core.agent_api.questions import Environment  # noqa: PLC0415

    variables: dict[str, str] = {}
    names, size = sorted(os.environ.keys() - {REGISTERED}), 0
    for name in names:
        value = os.environ.get(name)
        if value is None:  # deleted since then, by another thread
            continue
        shown = HIDDEN if is_secret(name, value) else _shortened(value)
        size += len(name) + len(shown)
        if size > MAX_CHARACTERS or len(variables) == MAX_VARIABLES:
            break
        variables[name] = shown
    return Environment(variables, len(names) - len(variables))


def _shortened(value: str) -> str:
    return value if len(value) <= MAX_VALUE else f"{value[:MAX_VALUE]}..."


def _question(name: str, _process: Process, body: Body) -> object:
    """Answer a question; if its function returns a function, this happens in another thread."""
    from relay_core.records import encode, parse  # noqa: PLC0415 - needed for such requests only

    kind, function = map(resolve, FUNCTIONS[name])
    answer = function(parse(kind, body))
    return (lambda respond: answer(lambda found: respond(encode(found)))) if callable(answer) else encode(answer)


def resolve(path: str) -> Any:
    """Return what a path of `FUNCTIONS` names; without `pkgutil`, because the job may have a file of that name."""
    module, _, name = path.partition(":")
    return getattr(importlib.import_module(module), name)


FUNCTIONS: Mapping[str, tuple[str, str]] = {
    "env": ("relay_core.agent_api.questions:ReadEnvironment", "relay_agent.debuggee.answers:read_environment"),
    "collectives": ("relay_core.agent_api.questions:ReadCollectives", "relay_agent.collectives.in_process:collect"),
    "evaluate": ("relay_core.agent_api.evaluation:Evaluate", "relay_agent.stacks.evaluation:start_evaluation"),
    "progress": (
        "relay_core.agent_api.questions:ReadProgress",
        "relay_agent.collectives.flight_recorder:read_progress",
    ),
    "stacks": ("relay_core.agent_api.questions:ReadStacks", "relay_agent.stacks.in_process:read_stacks"),
}
"""For each question except `Push` and `Watch`, which need the process: its class, and the function that is called with
it and returns the answer, or a function that passes the answer to its argument later."""
ANSWERS: Mapping[str, Callable[[Process, Body], object]] = {
    "arm": _arm,
    "connect": _connect,
    "release": lambda _process, _body: debugger.release(),
    "check": lambda _process, _body: bool(stopped_threads.executing),
    "timeouts": _timeouts,
    "allocator": lambda _process, _body: read_allocator(),
    "push": _push,
    "watch": _watch,
    **{name: functools.partial(_question, name) for name in FUNCTIONS},
}
"""Each handler returns its result as JSON, or a function that the helper thread calls with `Respond`; it may raise
RelayDebugError."""
