"""The question `push`, which replaces a source file in running processes: two phases, and a hold between them.

    prepare    compile the file, compare it with the running code, change nothing    `ready`, or an error
    hold       stop the main thread at its next call to a changed function    `held`, `stopped` or `running`
    commit     replace the code, and let the main thread continue             `done`, or an error
    abort      let the main thread continue, and forget the push              `done`

A process continues on its own if no message of its push arrives within `LEASE` seconds after a phase.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, ClassVar

from relay_core.agent_api.collectives import MAX_GROUPS
from relay_core.agent_api.members import Member, describe_ranks
from relay_core.agent_api.questions import Question, Seconds
from relay_core.errors import UsageError
from relay_core.records import Path, Wire, parse_or_none
from relay_core.value_parsers import TolerantEnum

MAX_SOURCE = 512 * 1024
"""Maximum size of a file in bytes, as UTF-8: ten times the size of the largest files that people edit."""
MAX_PATHS = 8
MAX_TARGETS = 4096
"""Maximum number of process groups of a job, each of which is named by its ranks."""
MAX_LINES = 200
"""Maximum number of sentences in one response."""
MAX_NAMES = 10
"""Maximum number of names in a sentence or a log line."""
LEASE = 5.0
"""Seconds for which a process waits for the next phase."""


Lines = Annotated[tuple[str, ...], Wire(most=MAX_LINES)]


class Phase(enum.Enum):
    """What a process does with a push."""

    PREPARE = "prepare"
    HOLD = "hold"
    COMMIT = "commit"
    ABORT = "abort"


ACTIVITIES = {
    Phase.PREPARE: "preparing the new code",
    Phase.HOLD: "holding the main threads",
    Phase.COMMIT: "replacing the code",
    Phase.ABORT: "cancelled",
}
"""Descriptions of the phases, for the log."""


class State(TolerantEnum):
    """The state of a process after a phase."""

    FAILED = ""
    READY = "ready"
    RUNNING = "running"
    """Its main thread has not called a changed function yet."""
    HELD = "held"
    STOPPED = "stopped"
    """A debugger has stopped its main thread."""
    DONE = "done"


@dataclass(frozen=True)
class Push(Question):
    """Execute one phase of a push, and return its `Pushed`.

    Anyone who may attach a debugger may send this request, but only a job with `--debug-allow-edit` accepts it.
    """

    name: ClassVar[str] = "push"
    max_body: ClassVar[int] = 4 * 1024 * 1024
    """JSON encodes a two-byte character as six bytes."""
    process_margin: ClassVar[float] = 1.0
    id: str = ""
    """Identifies the push; a process has at most one."""
    phase: Annotated[Phase, Wire(is_required=True)] = Phase.PREPARE
    file: Path = ""
    """The file on the node: absolute, or relative to the directory in which the process was started."""
    paths: Annotated[tuple[Path, ...], Wire(most=MAX_PATHS)] = ()
    """More such paths; a process takes the first one from which it has loaded a module, before `file`."""
    source: str = ""
    """Its new content, for `prepare`."""
    function: str = ""
    """For `hold`: the only function at which to hold; "" for any changed function."""
    again: bool = False
    """For `hold`: whether to let a main thread that is already held continue to its next call."""
    nested: bool = False
    """For `hold`: whether to hold even inside a call to another changed function."""
    targets: Annotated[Mapping[str, int], Wire(most=MAX_TARGETS)] = field(default_factory=dict)
    """For `hold`: counts that a main thread must have reached; until then, it continues to its next call."""
    seconds: Seconds = field(default=10.0, kw_only=True)

    @classmethod
    def parse_body(cls, value: object, user: str = "") -> Push:
        """Read the data of the stream; raises UsageError like `checked`."""
        if parse_or_none(cls, value) is None:
            raise UsageError("unknown push phase")
        return super().parse_body(value, user)

    def log_line(self) -> str:
        """Return the line about this phase of a push in the job's log."""
        return f"push by {self.user} to {describe_ranks(self.ranks)}: {ACTIVITIES[self.phase]}"

    def checked(self) -> Push:
        """Return the question as in `Question`; raises UsageError also if the push is incomplete or too long."""
        if not self.id or (self.phase is Phase.PREPARE and not self.file):
            raise UsageError("the push has no id or no file")
        if len(self.source.encode(errors="surrogatepass")) > MAX_SOURCE:
            raise UsageError(f"the file is larger than {MAX_SOURCE // 1024} KiB")
        return super().checked()


@dataclass(frozen=True)
class Pushed:
    """The result of a phase, and the processes that have this result."""

    members: tuple[Member, ...] = ()
    state: State = State.FAILED
    error: str = ""
    """Why the phase has failed."""
    hint: str = ""
    is_silent: bool = False
    """True if the process has not answered."""
    is_refused: bool = False
    """True if the job does not allow changes."""
    place: str = ""
    """The changed function at which the main thread is held."""
    functions: Lines = ()
    """Changed functions at whose next call the main thread can be held; after `hold`, without those whose call is being
    executed and is not in a loop."""
    running: Lines = ()
    """After `hold`: changed functions that a main thread which is not held is executing, the outermost first."""
    changed: Lines = ()
    """What is replaced or added: `train_step()`, `LR = 0.2`."""
    kept: Lines = ()
    """What remains unchanged, one sentence each."""
    file: str = ""
    """The file whose code is replaced."""
    digest: str = ""
    """The digest of its new content; see `relay_core.agent_api.requests.FileDigest`."""
    is_same: bool = False
    """True if the process was already executing this code, with the same line numbers; after `prepare` and `commit`."""
    counts: Annotated[Mapping[str, int], Wire(most=MAX_GROUPS)] = field(default_factory=dict, hash=False)
    """How many collective operations the process has begun, by process group; empty if that is not known."""
    before: Annotated[Mapping[str, int], Wire(most=MAX_GROUPS)] = field(default_factory=dict, hash=False)
    """If it is held: the counts at its last call of a changed function before this one, or at the beginning of the
    hold."""

    @property
    def summary(self) -> str:
        """The digest, and what was replaced, for a log line: `sha256 1a2b3c4d5e6f: train_step(), 2 more`."""
        what = "nothing changed" if self.is_same else "only line numbers changed"
        return f"sha256 {self.digest[:12]}: {listed(self.changed) or what}"


def listed(names: Sequence[str]) -> str:
    """Return names for a sentence: the first `MAX_NAMES`, and how many more there are."""
    more = [f"{len(names) - MAX_NAMES} more"] if len(names) > MAX_NAMES else []
    return ", ".join([*names[:MAX_NAMES], *more])
