"""What is common to all requests to an agent, and the questions that each chosen process of a node answers for itself.

The agent needs no code for such a question: it sends the fields to the chosen processes, and responds with one `Reply`
for each of them. A question consists of its class, and of its answer, a named tuple; of its row in
`relay_core.agent_api.requests.QUESTIONS`; and of the function that `relay_agent.debuggee.answers` names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Annotated, ClassVar, NamedTuple, TypeVar

from relay_core.agent_api.members import Member, ResultType, describe_ranks, selects_port, selects_rank, with_members
from relay_core.records import Clean, Port, Wire, as_is, parse

MAX_PROCESSES = 4096
"""Maximum number of replies of a node: many times the number of ranks on one hybrid connection."""
NO_ANSWER = "no answer"
"""How the error of a process begins that has not answered in time: "no answer within 5 s"."""

Seconds = Annotated[float, Wire(missing=0.0)]
Json = Annotated[object, Wire(read=lambda value, _: value, write=lambda value: value)]
"""What the agent and the records do not read."""
T = TypeVar("T")
Asking = TypeVar("Asking", bound="Question")


class AgentRequest:
    """What agent and client know about every request; the classes of requests are frozen dataclasses."""

    name: ClassVar[str]
    """The first part of the name of its stream."""
    arguments: ClassVar[tuple[str, ...]] = ()
    """The fields that are the other parts of the name."""
    max_response: ClassVar[int] = 32 * 1024 * 1024
    """Maximum number of bytes in a response; the stacks of eight processes with a hundred threads each, including
    variables, take up a few MiB."""


class StackReading(NamedTuple):
    """How the agent reads the stacks of a process that has not answered."""

    locals: bool = False
    """Whether to include local variables, as far as the method can read them."""
    main_only: bool = False
    """Whether to return only the main thread."""


@dataclass(frozen=True, kw_only=True)
class Question(AgentRequest):
    """A request that each chosen process answers for itself; the response is `NodeReplies`."""

    max_body: ClassVar[int] = 128 * 1024
    """Maximum size in bytes of the JSON with the fields, in the data of the stream."""
    max_seconds: ClassVar[float] = 60.0
    process_margin: ClassVar[float] = 0.0
    """Seconds that a process has, beyond its time limit, to report that the limit was exceeded."""
    is_checked: ClassVar[bool] = False
    """Whether a process is asked only once it has shown that it answers; it cannot answer the question much later."""
    agent_margin: ClassVar[float] = 10.0
    """Seconds that an agent has to respond once the time limit of its processes has expired."""
    activity: ClassVar[str] = ""
    """What is done, for the job's log: "reading the environment of"; "" if the question is not logged."""
    ranks: str = "all"
    """The processes that are asked: a list of ranks, or "all", which includes processes without a rank."""
    ports: str = ""
    """A list of logical ports that further restricts the processes; "" for all. Logical ports differ between jobs."""
    seconds: Seconds = 5.0
    """Time limit for each process; at most `max_seconds`."""
    user: str = ""
    """The user who asks; set by the agent."""

    @classmethod
    def parse_body(cls: type[Asking], value: object, user: str = "") -> Asking:  # noqa: PYI019 - Python 3.10
        """Read the data of the stream; raises UsageError like `checked`.

        Args:
            value: The JSON object.
            user: The user who sent it, as known to the agent.
        """
        return replace(parse(cls, value), user=user).checked()

    def checked(self: Asking) -> Asking:  # noqa: PYI019 - Python 3.10
        """Return the question with a time limit of at most `max_seconds`.

        Raises:
            UsageError: a field is invalid, such as `ranks` or `ports`.
        """
        self.selects(0, 0)
        return replace(self, seconds=min(self.seconds or type(self).seconds, self.max_seconds))

    def selects(self, rank: int | None, port: int) -> bool:
        """Return whether a process is asked.

        Raises:
            UsageError: `ranks` or `ports` is invalid.
        """
        is_of_job = selects_port(self.ports, port)
        return selects_rank(self.ranks, rank) and is_of_job

    def log_line(self) -> str:
        """Return the line about the question in the job's log."""
        return self.activity and f"{self.activity} {describe_ranks(self.ranks)} for {self.user}"

    def stacks_instead(self) -> StackReading | None:
        """Return how the agent reads the stacks of a process that has not answered; None if it does not."""
        return None


@dataclass(frozen=True)
class Reply:
    """What one process replied to a question."""

    port: Port
    """The logical port of the process."""
    rank: int | None = None
    answer: Json = None
    """Its answer; None if there is an error."""
    error: str = ""
    """Why the answer is missing."""
    is_silent: bool = False
    """True if the process has not answered in time, or has exited."""
    pid: int | None = None
    stacks: Json = None
    """Instead of the answer, the `ProcessStacks` that the agent has read, if the question requests them."""

    def read(self, kind: type[T], clean: Clean = as_is) -> T:
        """Return the answer as a record, whose fields are missing if there is none."""
        return parse(kind, self.answer, clean)

    def result(self, kind: type[ResultType], clean: Clean = as_is) -> ResultType:
        """Return the answer, or the error, as a record that has the process as its only member."""
        missing = {"error": clean(self.error), "is_silent": self.is_silent} if self.error else {}
        return with_members(self.read(kind, clean), (Member(self.port, self.rank),), **missing)


@dataclass(frozen=True)
class NodeReplies:
    """The response to a `Question`: the replies of the chosen processes of a node, in the order of their ports."""

    processes: Annotated[tuple[Reply, ...], Wire(most=MAX_PROCESSES)] = ()
    node: Json = None
    """What the agent adds about its node, if the question requests it."""


@dataclass(frozen=True)
class ReadEnvironment(Question):
    """Return the environment variables of the process, as the job sees them now; secrets are replaced."""

    name: ClassVar[str] = "env"
    activity: ClassVar[str] = "reading the environment variables of"


class Environment(NamedTuple):
    """The environment variables of a process."""

    variables: Mapping[str, str] = MappingProxyType({})
    """The values by name, in the order of the names. A secret is "***", and a long value ends with "..."."""
    left_out: int = 0
    """The number of variables that were left out because there are too many."""


@dataclass(frozen=True)
class ReadProgress(Question):
    """Return how many collective operations the process has begun; clients ask this at intervals."""

    name: ClassVar[str] = "progress"
    max_response: ClassVar[int] = 256 * 1024
    """Enough for 64 processes; more would take time of the client at each interval."""


@dataclass(frozen=True, kw_only=True)
class ReadStacks(Question):
    """Return the stacks of all threads of the process: `ProcessStacks`."""

    name: ClassVar[str] = "stacks"
    agent_margin: ClassVar[float] = 29.0
    """The agent tries other methods for several seconds, and the stacks of many threads are long."""
    seconds: Seconds = 1.0
    locals: bool = False
    """Whether to include local variables."""

    def stacks_instead(self) -> StackReading:
        """Return that all threads are read, because a process that does not answer may hang."""
        return StackReading(self.locals)


@dataclass(frozen=True, kw_only=True)
class ReadCollectives(Question):
    """Return the process groups of the process, and what its main thread is doing: `ProcessCollectives`.

    `NodeReplies.node` is the `RasStatus` of the node; None if nothing listens on the port of NCCL RAS.
    """

    name: ClassVar[str] = "collectives"
    seconds: Seconds = 1.5
    """A process needs 60 ms to read its recorders unless C code holds the GIL."""

    def stacks_instead(self) -> StackReading:
        """Return that the main thread is read, whose place is known even if C code holds the GIL."""
        return StackReading(main_only=True)
