"""The request `push`, which replaces a source file in running processes: two phases, and a hold between them.

    prepare    compile the file, compare it with the running code, change nothing    `ready`, or an error
    hold       stop the main thread at its next call to a changed function    `held`, `stopped` or `running`
    commit     replace the code, and let the main thread continue             `done`, or an error
    abort      let the main thread continue, and forget the push              `done`

A process continues on its own if no message of its push arrives within `LEASE` seconds after a phase.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar

from relay_core.agent_api.collectives import MAX_GROUPS
from relay_core.agent_api.members import Member, parse_members, selects_rank
from relay_core.agent_api.values import Clean, as_is, count, items, mapping, path, seconds, text
from relay_core.errors import UsageError

__all__ = ["LEASE", "MAX_SOURCE", "NodePushed", "Phase", "Push", "Pushed", "State"]

MAX_SOURCE = 512 * 1024
"""Maximum size of a file in bytes, as UTF-8: ten times the size of the largest files that people edit."""
MAX_BODY = 4 * 1024 * 1024
"""Maximum size of the body in bytes: JSON encodes a two-byte character as six bytes."""
MAX_SECONDS = 60.0
MAX_PATHS = 8
MAX_LINES = 200
"""Maximum number of sentences in one response."""
MAX_NAMES = 10
"""Maximum number of names in a log line."""
LEASE = 5.0
"""Seconds for which a process waits for the next phase."""


class Phase(enum.Enum):
    """What a process does with a push."""

    PREPARE = "prepare"
    HOLD = "hold"
    COMMIT = "commit"
    ABORT = "abort"


class State(enum.Enum):
    """The state of a process after a phase."""

    FAILED = ""
    READY = "ready"
    RUNNING = "running"
    """Its main thread has not called a changed function yet."""
    HELD = "held"
    STOPPED = "stopped"
    """A debugger has stopped its main thread."""
    DONE = "done"

    @classmethod
    def _missing_(cls, _value: object) -> State:
        return cls.FAILED


@dataclass(frozen=True)
class Push:
    """One phase of a push, for processes on the node; the stream's data is the body.

    Anyone who may attach a debugger may send this request, but only a job with `--debug-allow-edit` accepts it.
    """

    name: ClassVar[str] = "push"
    id: str = ""
    """Identifies the push; a process has at most one."""
    phase: Phase = Phase.PREPARE
    file: str = ""
    """The file on the node: absolute, or relative to the directory in which the process was started."""
    paths: tuple[str, ...] = ()
    """More such paths; a process takes the first one from which it has loaded a module, before `file`."""
    source: str = ""
    """Its new content, for `prepare`."""
    ranks: str = "all"
    seconds: float = 10.0
    """Time limit for the phase in each process."""
    function: str = ""
    """For `hold`: the only function at which to hold; "" for any changed function."""
    again: bool = False
    """For `hold`: whether to let a main thread that is already held continue to its next call."""
    nested: bool = False
    """For `hold`: whether to hold even inside a call to another changed function."""
    targets: Mapping[str, int] = field(default_factory=dict)
    """For `hold`: counts that a main thread must have reached; until then, it continues to its next call."""
    user: str = ""
    """The user who sent the push, as known to the agent; not part of the body."""

    def encode(self) -> str:
        """Return the name of the stream."""
        return self.name

    def body(self) -> dict[str, object]:
        """Return the data of the stream."""
        fields: dict[str, object] = {
            "id": self.id,
            "phase": self.phase.value,
            "file": self.file,
            "paths": list(self.paths),
            "source": self.source,
            "ranks": self.ranks,
            "seconds": self.seconds,
            "function": self.function,
            "again": self.again,
            "nested": self.nested,
            "targets": dict(self.targets),
        }
        return {name: value for name, value in fields.items() if value}

    @classmethod
    def parse(cls, target: str) -> Push | None:
        """Read the name of a stream; return None if it names another request."""
        return cls() if target == cls.name else None

    @classmethod
    def parse_body(cls, value: object, user: str = "") -> Push:
        """Read the data of the stream; raises UsageError like `checked`."""
        fields = mapping(value)
        try:
            phase = Phase(text(fields.get("phase")))
        except ValueError:
            raise UsageError("unknown push phase") from None
        return cls(
            text(fields.get("id")),
            phase,
            path(fields.get("file")),
            tuple(filter(None, map(path, items(fields.get("paths"))[:MAX_PATHS]))),
            text(fields.get("source")),
            text(fields.get("ranks")) or "all",
            seconds(fields.get("seconds")) or 10.0,
            text(fields.get("function")),
            fields.get("again") is True,
            fields.get("nested") is True,
            _counts(fields.get("targets")),
            user,
        ).checked()

    def checked(self) -> Push:
        """Return the request with a time limit of at most `MAX_SECONDS`.

        Raises:
            UsageError: the id or the file is missing, the source is too long, or the ranks are invalid.
        """
        if not self.id or (self.phase is Phase.PREPARE and not self.file):
            raise UsageError("the push has no id or no file")
        if len(self.source.encode(errors="surrogatepass")) > MAX_SOURCE:
            raise UsageError(f"the file is larger than {MAX_SOURCE // 1024} KiB")
        self.selects(0)
        return replace(self, seconds=min(self.seconds, MAX_SECONDS))

    def selects(self, rank: int | None) -> bool:
        """Return whether the push is for a rank.

        Raises:
            UsageError: `ranks` is invalid.
        """
        return selects_rank(self.ranks, rank)


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
    functions: tuple[str, ...] = ()
    """Changed functions at whose next call the main thread can be held."""
    changed: tuple[str, ...] = ()
    """What is replaced or added: `train_step()`, `LR = 0.2`."""
    kept: tuple[str, ...] = ()
    """What remains unchanged, one sentence each."""
    file: str = ""
    """The file whose code is replaced."""
    digest: str = ""
    """The digest of its new content; see `relay_core.agent_api.requests.FileDigest`."""
    is_same: bool = False
    """True if the process was already executing this code, with the same line numbers."""
    counts: Mapping[str, int] = field(default_factory=dict, hash=False)
    """How many collective operations the process has begun, by process group; empty if that is not known."""

    @property
    def summary(self) -> str:
        """The digest, and what was replaced, for a log line: `sha256 1a2b3c4d5e6f: train_step(), 2 more`."""
        names = [*self.changed[:MAX_NAMES]] or ["nothing changed" if self.is_same else "only line numbers changed"]
        more = [f"{len(self.changed) - MAX_NAMES} more"] if len(self.changed) > MAX_NAMES else []
        return f"sha256 {self.digest[:12]}: {', '.join([*names, *more])}"

    def encode(self) -> dict[str, object]:
        """Return one element of `processes`; empty fields are omitted."""
        fields: dict[str, object] = {
            "state": self.state.value,
            "error": self.error,
            "hint": self.hint,
            "silent": self.is_silent,
            "refused": self.is_refused,
            "place": self.place,
            "counts": dict(self.counts),
            "functions": list(self.functions[:MAX_LINES]),
            "changed": list(self.changed[:MAX_LINES]),
            "kept": list(self.kept[:MAX_LINES]),
            "same": self.is_same,
            "file": self.file,
            "digest": self.digest,
        }
        return {"members": [member.encode() for member in self.members]} | {
            name: value for name, value in fields.items() if value
        }

    @classmethod
    def parse(cls, value: object, clean: Clean = as_is) -> Pushed:
        """Read one element of `processes`."""
        fields = mapping(value)
        return cls(
            members=parse_members(fields.get("members")),
            state=State(text(fields.get("state"))),
            error=text(fields.get("error"), clean),
            hint=text(fields.get("hint"), clean),
            is_silent=fields.get("silent") is True,
            is_refused=fields.get("refused") is True,
            place=text(fields.get("place"), clean),
            counts=_counts(fields.get("counts")),
            functions=_lines(fields.get("functions"), clean),
            changed=_lines(fields.get("changed"), clean),
            kept=_lines(fields.get("kept"), clean),
            is_same=fields.get("same") is True,
            file=text(fields.get("file"), clean),
            digest=text(fields.get("digest"), clean),
        )


def _counts(value: object) -> dict[str, int]:
    found = ((name, count(number)) for name, number in list(mapping(value).items())[:MAX_GROUPS])
    return {str(name): number for name, number in found if number is not None}


def _lines(value: object, clean: Clean) -> tuple[str, ...]:
    return tuple(text(line, clean) for line in items(value)[:MAX_LINES])


@dataclass(frozen=True)
class NodePushed:
    """The response to `Push`: the results of the processes on a node; equal results are sent only once."""

    processes: tuple[Pushed, ...] = ()

    def encode(self) -> dict[str, object]:
        """Return the response."""
        return {"processes": [found.encode() for found in self.processes]}

    @classmethod
    def parse(cls, value: object, clean: Clean = as_is) -> NodePushed:
        """Read the response."""
        found = items(mapping(value).get("processes"))
        return cls(tuple(Pushed.parse(one, clean) for one in found if isinstance(one, Mapping)))
