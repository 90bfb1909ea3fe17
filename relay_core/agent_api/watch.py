"""The question `watch`: reports an expression at a line of a running job, bad gradients, or checksums to be compared.

The question contains the whole watch, so it installs the watch in a process that does not know it: one that starts
later, or one in which it has lapsed while the client was asleep. The client asks it again and again, and a process
answers as soon as it has hits, or after `wait` seconds without any. A watch that nobody asks about for `LEASE` seconds
is removed, so nothing of it stays in a job whose client is gone.

A hit is repeated until a later question acknowledges it, so one whose answer was lost is not. An agent responds shortly
after the first process has answered, and leaves out the processes that have not: the client asks again at once, and
they answer then. If all processes have failed, or there are none, it responds immediately, so the client must wait. A
process whose watch has ended knows that for `LEASE` seconds; a later question would install the watch again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, ClassVar

from relay_core.agent_api.evaluation import MAX_EXPRESSION, Selection, Value
from relay_core.agent_api.questions import Question, Seconds
from relay_core.agent_api.stacks import Frame
from relay_core.errors import UsageError
from relay_core.records import Wire

MAX_LASTS = 4_294_967.0
"""Maximum duration of a watch in seconds, about 49 days: `threading.TIMEOUT_MAX` on Windows, which is 2**32 - 2 ms and
the smallest of the limits on a wait."""
LEASE = 30.0
"""Seconds without a question after which a process removes a watch: three times as long as `WAIT`."""
WAIT = 10.0
"""Seconds for which a process waits for a hit before it answers that there is none."""
MAX_ID = 64
"""Maximum number of characters of an id."""
MAX_PATH = 4096
"""Maximum number of characters of a file's path, the limit of Linux (PATH_MAX)."""
MAX_FRAMES = 5
"""Maximum number of frames that a hit contains."""
MAX_HITS = 200
"""Maximum number of hits in an answer, and that a process keeps until they are acknowledged; later ones are counted."""


@dataclass(frozen=True, kw_only=True)
class Watch(Question):
    """Return the hits of a watch, as `Watched`, and install it in a process that does not have it.

    Anyone who may attach a debugger may send this request: both execute code of the sender's choice.
    """

    name: ClassVar[str] = "watch"
    seconds: Seconds = WAIT + 5.0
    """Time limit for each process, longer than `wait`."""
    id: str = ""
    """Identifies the watch; chosen at random by the client."""
    file: str = ""
    """The file: absolute, or the last parts of its path, as in `train.py` or `models/net.py`."""
    line: int = 0
    gradients: bool = False
    """Whether the place is not a line, but all steps of optimizers before which a gradient is not finite."""
    selection: Annotated[Selection | None, Wire(read=Selection.parse, write=Selection.encode)] = None
    """What is compared of the expression's value; then the place is the steps of optimizers, and a hit has checksums.
    While it is not the whole value, each step is due. None for no comparison."""
    is_holding: bool = False
    """Whether the process waits for a debugger at a hit, as long as its settings allow."""
    is_capturing: bool = False
    """Whether a hit contains the variables of the frame and of its callers."""
    expression: str = ""
    """What is evaluated at the line, before it is executed; "" for nothing."""
    condition: str = ""
    """Evaluated first; a hit is reported only if it is true. "" for always."""
    every: int = 1
    """Report only the first time that the line is reached and the condition is true, and every n-th time after it."""
    hits: int = 0
    """The watch ends after as many reported hits; 0 for no limit."""
    lasts: float = 3600.0
    """Seconds after which the watch ends."""
    after: Mapping[str, int] = field(default_factory=dict, hash=False)
    """For each logical port, as a decimal number, the number of the last hit that the client has received; 0 if it has
    received an answer without hits. A process that is not listed answers immediately."""
    wait: float = WAIT
    """Seconds to wait for a hit before answering that there is none."""
    is_last: bool = False
    """True to remove the watch; the answer contains its last hits."""

    @property
    def is_of_steps(self) -> bool:
        """Whether the place is all steps of optimizers."""
        return self.gradients or self.selection is not None

    def checked(self) -> Watch:
        """Return the question as in `Question`; raises UsageError also if the place or an expression is invalid."""
        has_place = self.is_of_steps or (self.file and self.line >= 1)
        if not (has_place and 0 < len(self.id) <= MAX_ID and len(self.file) <= MAX_PATH):
            raise UsageError("the watch has no valid id or place")
        if max(len(self.expression), len(self.condition)) > MAX_EXPRESSION:
            raise UsageError(f"the expression or the condition is longer than {MAX_EXPRESSION} characters")
        if self.every < 1 or self.hits < 0 or not 0 < self.lasts <= MAX_LASTS:
            raise UsageError(f"the watch has no valid frequency, or no duration of at most {MAX_LASTS:.0f} s")
        return super().checked()


@dataclass(frozen=True)
class Compared:
    """What is compared between ranks before a step of an optimizer."""

    value: Value
    """The checksums."""
    selection: Annotated[Selection, Wire(read=Selection.parse, write=Selection.encode)]
    ranks: str
    """The ranks whose values are the same: `all`, or those that hold the same part of it."""


@dataclass(frozen=True)
class Hit:
    """One report of a watch."""

    number: int = 0
    """The number in `Watch.after`. It grows by 1 with each hit of a process, and begins with the milliseconds since the
    epoch at which the watch was installed, so it also grows when the process has been started again."""
    reached: int = 0
    """How many times the process had reached the line, including this time."""
    time: float = 0.0
    """Seconds since the epoch, by the clock of the node."""
    text: str = ""
    """The value of the expression, by the rules of `eval`; for gradients, what is not finite comes first."""
    error: str = ""
    """The exception that the expression has raised instead."""
    thread: str = ""
    """The name of the thread, unless it is the main thread."""
    frames: Annotated[tuple[Frame, ...], Wire(most=MAX_FRAMES)] = ()
    """The frame and its callers in the user's own code, innermost last, with their variables, if they are captured."""
    compared: Compared | None = None
    """The checksums, if there is a selection; then `text` is the step, in the same words in all ranks."""


@dataclass(frozen=True)
class Watched:
    """The state of a watch in one process."""

    hits: Annotated[tuple[Hit, ...], Wire(most=MAX_HITS)] = ()
    """The hits that were not acknowledged, oldest first."""
    place: str = ""
    """Where the watch is: `train_step train.py:88`, or `optimizer steps`; "" while the file or torch is not loaded."""
    reached: int = 0
    """How many times the line was reached."""
    missed: int = 0
    """How many hits were dropped, because too many were not acknowledged."""
    skipped: int = 0
    """How many times the expressions were not evaluated, because the line is reached too often."""
    spent: float = 0.0
    """Seconds that the watch has taken of the job's threads."""
    note: str = ""
    """What the user should know, in one sentence: another line, calls that are not watched, a condition that raises."""
    error: str = ""
    """Why the process cannot watch this."""
    ended: str = ""
    """Why the watch has ended: `after 100 hits`, `after 3600 s`; "" while it is installed."""
