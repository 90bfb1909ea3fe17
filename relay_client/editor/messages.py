"""What relay-client knows about a job, and the messages and sentences that it sends to an editor itself."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

from relay_client.ui.text import CHECK_PORTS, duration, format_ports
from relay_core.agent_api.announcement import Ending
from relay_core.dap.messages import Body, Message, Request, Response, response_to
from relay_core.foreign import failure, message_format, notification

# What relay-client knows about the job behind one connection.


@dataclass(frozen=True)
class JobView:
    """A snapshot; unknown fields are empty."""

    port: int
    """The logical port."""
    hybrid_connection: str = ""
    label: str = ""
    """Name of the target, with its node if known: `rank 0 on node-1`; with its port if several jobs have a rank 0."""
    is_alone: bool = False
    """True if the target is the only one in its job."""
    host: str = ""
    cwd: str = ""
    """The directory in which the target was started."""
    script: str = ""
    """The file or module that the target runs, without its directory."""
    holder: str = ""
    """Who has attached a debugger, as in `held by bob@laptop (since 12:03)`."""
    away_reason: str = ""
    """Why the tunnel has no connection at the moment; "" if it has one."""
    is_running: bool = False
    """True if the target is currently announced, and therefore has not exited."""
    announces_endings: bool = False
    """True if the agent announces why a target has ended."""
    ending: Ending | None = None
    """How the target has ended."""
    other_ports: tuple[int, ...] = ()
    """The logical ports of the registered processes, as long as none of them has had this port."""
    is_stopped: bool = False
    """True if the debugger has stopped the target."""
    peer_timeout: float | None = None
    """Seconds for which other ranks wait for a stopped target; None if they wait long enough, or if it is unknown."""
    pushes: int = 0
    """Number of times that the target's code has been replaced."""
    replaced: str = ""
    """A sentence about the stop of the debugger that this connection replaces if it can attach; "" if it had none."""

    @property
    def name(self) -> str:
        """The target, or the port that leads to it."""
        return self.label or f"port {self.port}"

    @property
    def subject(self) -> str:
        """Name of the target in sentences about how it ended."""
        return self.label if self.label and not self.is_alone else "the job"


# DAP messages that relay-client itself sends to an editor.
#
# https://microsoft.github.io/debug-adapter-protocol/specification

CONSOLE = "console"
"""Category of output that an editor shows in its debug console."""
IMPORTANT = "important"
"""Category of output that requires action by the user; VS Code also shows it as a notification."""
PREFIX = "relay-client: "
"""A prefix that distinguishes relay-client's lines from the output of the job."""


class EditorMessages(ABC):
    """Sends messages to one editor."""

    @abstractmethod
    def send(self, message: Message) -> None:
        """Number a message, and pass it on."""

    def event(self, name: str, body: Mapping[str, object] | None = None) -> None:
        """Send an event."""
        self.send({"type": "event", "event": name, "body": dict(body or {})})

    def show(self, text: str, category: str = CONSOLE) -> None:
        """Show one line of text, possibly as a notification."""
        self.event("output", {"category": category, "output": f"{PREFIX}{notification(text)}\n"})

    def answer(self, request: Request, body: Mapping[str, object] | None = None) -> None:
        """Answer a request that has succeeded."""
        response = response_to(request, success=True)
        self.send(response if body is None else {**response, "body": dict(body)})

    def answer_text(self, request: Request, text: str) -> None:
        """Answer a request from the debug console with text."""
        self.answer(request, {"result": text, "variablesReference": 0})

    def fail(self, request: Request, reason: str) -> None:
        """Answer a request that has failed; the editor shows the reason."""
        self.send(make_failure(request, reason))


def make_failure(request: Request, reason: str) -> Response:
    """Return the response to a request that has failed; the editor shows the reason."""
    # `message` is for programs that ignore `body.error`.
    error: Body = {"id": 1, "format": message_format(reason), "showUser": True}
    return {**response_to(request, success=False), "message": failure(reason), "body": {"error": error}}


# The sentences that an editor shows; the functions above put the program's name in front of them.

CANNOT_FOLLOW = (
    '"subProcess": true is set, but this editor does not report support for debugging child processes, so each of them '
    'would wait for a debugger that never attaches. hint: remove "subProcess" from the attach configuration'
)
CHILD_HINT = (
    "if its parent ends children that do not answer, raise that limit, such as gunicorn's --timeout or uvicorn's "
    "--timeout-worker-healthcheck"
)
"""What follows the sentence about a child process that has ended at a breakpoint."""
IN_C_CODE = "is running C code and will stop when it returns to Python"
"""What follows the name of a target that has not stopped although it should pause."""
NOT_FOLLOWED = (
    "breakpoints in child processes will not be hit, because this editor does not report support for debugging child "
    "processes"
)
GUARDED = "detached; the job continues (to let an editor terminate the job, start relay-client with --allow-terminate)"


def waiting_text(view: JobView, reason: str, seconds: float) -> str:
    """Return what a connection is waiting for, how long, and why: `waiting for rank 0 on 'myhc' (35 s so far): ...`."""
    where = f" on '{view.hybrid_connection}'" if view.hybrid_connection and " on " not in view.name else ""
    others = f"; registered: {format_ports(view.other_ports)}. hint: {CHECK_PORTS}" if view.other_ports else ""
    return f"waiting for {view.name}{where} ({duration(seconds)} so far): {reason or 'looking for its agent'}{others}"
