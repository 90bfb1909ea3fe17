"""Requests, results and events of the control socket; each request is a dataclass that names the type of its result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from relay_client.control.state import Port, Status
from relay_client.verbs.table import VERBS
from relay_client.verbs.verb import Answer, Verb

VERSION = 1
"""Version of the protocol. A new version may add requests, events and fields; a changed meaning requires a new name."""

EVENTS = (
    "connected",
    "lost",
    "resumed",
    "ended",
    "state",
    "held",
    "free",
    "stopped",
    "continued",
    "opened",
    "closed",
    "waiting",
    "attached",
    "detached",
    "log",
)
"""Kinds of events; docs/reference/control-socket.md explains them."""


@dataclass(frozen=True)
class LogLine:
    """One log line."""

    time: float
    level: str
    text: str


@dataclass(frozen=True)
class LogLines:
    """Result of `Logs`."""

    lines: tuple[LogLine, ...] = ()


@dataclass(frozen=True)
class Attached:
    """Result of `Attach`: connect a debugger to `host`:`local_port`."""

    port: int
    """Logical port of the rank."""
    local_port: int
    host: str
    """Address on this machine at which the port is open."""
    is_new: bool
    """True if the local port has been opened for this request."""
    rank: int | None = None
    node: str = ""
    """Host name of the node."""
    holder: str | None = None
    """`user@host` of the debugger that is attached now; any other debugger is refused until this one disconnects."""


@dataclass(frozen=True)
class AttachedAll:
    """Result of `AttachAll`: connect a debugger to `host`:`local_port`."""

    local_port: int
    host: str
    """Address on this machine at which the port is open."""
    is_new: bool
    """True if the port was opened for this request."""


@dataclass(frozen=True)
class Opened:
    """Result of `OpenPorts`."""

    ports: tuple[int, ...] = ()
    """The local ports that were opened for this request; the others were open."""


@dataclass(frozen=True)
class Released:
    """Result of `Release`."""

    connections: int
    """Number of connections that were closed."""
    closed_ports: tuple[int, ...] = ()
    """Local ports that `Attach` had opened and that were closed."""


@dataclass(frozen=True)
class ChosenGroup:
    """Result of `ChooseGroup`."""

    text: str
    """The group and its attached ranks, as in `ranks 0,3-5: ranks 0, 3-4`."""


@dataclass(frozen=True)
class Stopping:
    """Result of `Stop`."""


Result = Status | LogLines | Attached | AttachedAll | Opened | Released | ChosenGroup | Stopping | Answer


@dataclass(frozen=True)
class OwnRequest:
    """What only a running relay-client can do, because it is about its ports, its log or its end."""

    name: ClassVar[str]
    result: ClassVar[type[Result]]

    def __init_subclass__(cls, name: str, result: type[Result]) -> None:
        """Take the name of the request, and the type of its result, from the definition of its class."""
        cls.name, cls.result = name, result


@dataclass(frozen=True)
class GetStatus(OwnRequest, name="status", result=Status):
    """Return the state."""


@dataclass(frozen=True)
class Logs(OwnRequest, name="logs", result=LogLines):
    """Return the last lines of the log."""

    lines: int = 200
    follow: bool = False
    """Whether to also send later lines, as `log` events."""


@dataclass(frozen=True)
class Attach(OwnRequest, name="attach", result=Attached):
    """Start a rank's debugger, and open a local port that leads to the rank. Either `rank` or `port` is required."""

    rank: int | None = None
    port: int | None = None
    """Logical port, for a target whose rank is ambiguous or missing."""
    local_port: int | None = None
    """Local port to open; by default the logical port, or a free port if the logical port is in use."""
    wait: bool = False
    """Whether to wait until the rank has registered."""


@dataclass(frozen=True)
class AttachAll(OwnRequest, name="attach_all", result=AttachedAll):
    """Return the port of the debug session of all ranks; open one if there is none."""


@dataclass(frozen=True)
class OpenPorts(OwnRequest, name="open", result=Opened):
    """Open those of these local ports that are not open, or none of them if that fails; `release` keeps them open."""

    ports: tuple[Port, ...] = ()


@dataclass(frozen=True)
class Release(OwnRequest, name="release", result=Released):
    """Disconnect this machine's debuggers from a rank; the process continues."""

    rank: int | None = None
    port: int | None = None


@dataclass(frozen=True)
class ChooseGroup(OwnRequest, name="group", result=ChosenGroup):
    """Choose the ranks that move together in the debug sessions of all ranks, or return the current choice."""

    group: str | None = None
    """`all`, `here` or a list of ranks; None to leave the choice unchanged."""


@dataclass(frozen=True)
class Subscribe(OwnRequest, name="subscribe", result=Status):
    """Return the state, and send events from now on."""

    events: tuple[str, ...] | None = None
    """Kinds of events; by default, all kinds except `log`."""


@dataclass(frozen=True)
class Stop(OwnRequest, name="stop", result=Stopping):
    """Stop this relay-client, as Ctrl-C does."""


OWN = (GetStatus, Logs, Attach, AttachAll, OpenPorts, Release, ChooseGroup, Subscribe, Stop)
Request = OwnRequest | Verb
REQUESTS: tuple[type[Request], ...] = (*OWN, *VERBS)
