"""The verb `watch`: what the processes have reported about a watched line; the command performs it again and again."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from relay_client.ui.text import LISTING
from relay_client.verbs.verb import Answer, Command, Verb
from relay_core.agent_api.evaluation import Selection
from relay_core.errors import NoListener, UsageError
from relay_core.records import Wire

if TYPE_CHECKING:
    from relay_client.agents.requests import NodeReply
    from relay_client.agents.tunnels import Tunnels
    from relay_client.watching import WatchedRank
    from relay_core.agent_api.watch import Watch as Question

ANSWER_SECONDS = 5.0
"""Seconds that a process has to answer, beyond those for which it waits for a hit."""
LAST_SECONDS = 2.0
"""Seconds to wait for the last hits, after which the user gets the prompt back in any case."""
GRADIENTS, DIVERGENCE = "nan", "diverge"
"""The places that stand for steps of optimizers: before which a gradient is not finite, or values of ranks differ."""
CAPTURE, HOLD = "capture", "hold"
ACTIONS = ("report", CAPTURE, HOLD)
"""What can happen at a hit."""
_PLACE = re.compile(r"(?P<file>.+?):(?P<line>[1-9][0-9]{0,8})(?::[0-9]+)?", re.ASCII)
"""`train.py:88`, `C:\\src\\train.py:88`, and `train.py:88:5` as editors copy it."""


def parse_place(text: str) -> tuple[str, int]:
    """Return the file and the line of a place; "" and 0 for steps of optimizers.

    Raises:
        UsageError: the text is neither FILE:LINE nor `nan` nor `diverge`.
    """
    if text in {GRADIENTS, DIVERGENCE}:
        return "", 0
    found = _PLACE.fullmatch(text)
    if found is None:
        raise UsageError(f"invalid place: '{text}'", hint="use FILE:LINE, such as train.py:88, or nan or diverge")
    return found["file"], int(found["line"])


@dataclass(frozen=True)
class Watch(Verb):
    """Install a watch in all processes that do not have it, wait for hits, and return them."""

    name = "watch"
    changes_job = True  # an expression can execute any code
    command = Command(
        "report values at a line, NaN, or divergence",
        "Evaluates a Python expression in all ranks each time they reach a line, just before the line is executed, "
        "and prints its value. With 'nan', reports gradients that are not finite before they are applied; with "
        "'diverge', compares the value in all ranks before optimizer steps, and ends at a difference. No rank is "
        "stopped without --then hold, and editors can stay attached; the expression is executed by the thread that has "
        "reached the line, so whatever it changes is changed in the job. The watch ends with Ctrl-C, after --for or "
        "--hits, or when all ranks have ended; then prints, on stderr, a table with how often each rank reached the "
        "line, and the cost. Exits with status 17 if no rank can watch, or no value or difference was reported.",
        {
            "place": "FILE:LINE, such as train.py:88; the file may have another directory on the nodes: relative to "
            "the current directory, it has the same path as on the nodes, or the end of that path. Or nan, or diverge",
            "expression": "a Python expression with the variables at the line, or of the optimizer's caller (default: "
            "only count)",
        },
        optional={"expression"},
    )
    checks: ClassVar[Mapping[str, Callable[[str], object]]] = {**Verb.checks, "place": parse_place}
    place: str
    """FILE:LINE, as on the nodes: the file's absolute path, or the end of its path; or `nan`, or `diverge`."""
    expression: str = ""
    """A Python expression; "" to only count."""
    ranks: str = "all"
    """A list of global ranks, or `all`."""
    ports: str = ""
    """Logical ports, to choose one of several jobs; "" for all."""
    when: str = ""
    """Report only if this expression is true; "" for always."""
    every: int = 1
    """Report the first time, and then every n-th time."""
    hits: int = 0
    """Hits after which the watch ends in a process; 0 for one if ranks are held, variables are captured or gradients
    are watched, or else for no limit."""
    then: str = ACTIONS[0]
    """What happens at a hit: `report`, `capture` to also report the variables of the frame and of its callers, or
    `hold` to also stop there and wait for a debugger."""
    lasts: float = 3600.0
    """Seconds after which the watch ends in a process."""
    selection: Annotated[Selection | None, Wire(read=Selection.parse, write=Selection.encode)] = None
    """What is compared of the value with `diverge`; None for the whole value."""
    watch_id: str = ""
    """Identifies the watch: a random text, the same in all requests about it."""
    after: Mapping[str, int] = field(default_factory=dict, hash=False)
    """The number of the last hit that has arrived from each process, by its logical port; later hits are returned,
    again if they were returned before."""
    wait: float = 0.0
    """Seconds to wait for a hit."""
    is_last: bool = False
    """Whether to remove the watch, after its last hits are returned."""

    def after_hits(self, cursors: Mapping[int, int], **fields: Any) -> Watch:
        """Return the next request, after the hits of each process with these numbers, by logical port, have arrived."""
        return replace(self, after={str(port): number for port, number in cursors.items()}, **fields)

    @property
    def is_repeated(self) -> bool:
        """Whether a program asks this repeatedly."""
        return bool(self.wait) or self.is_last

    def question(self) -> Question:
        """Return the question to the processes; raises UsageError if a field is invalid."""
        from relay_core.agent_api import watch

        file, line = parse_place(self.place)
        is_comparing = self.place == DIVERGENCE
        if is_comparing and not self.expression:
            raise UsageError("an expression is missing", hint="use, for example, 'relay-client watch diverge model'")
        if is_comparing and (self.when or self.hits or self.then != ACTIONS[0]):
            raise UsageError("a comparison ends at a difference, so it has no condition, hits and action")
        if self.then not in ACTIONS:
            raise UsageError(f"invalid action: '{self.then}'", hint=f"use {', '.join(ACTIONS[:-1])} or {ACTIONS[-1]}")
        same = ("expression", "every", "lasts", "after", "wait", "is_last", "ranks", "ports")
        return watch.Watch(
            id=self.watch_id,
            file=file,
            line=line,
            gradients=self.place == GRADIENTS,
            selection=(self.selection or Selection()) if is_comparing else None,
            is_holding=self.then == HOLD,
            is_capturing=self.then == CAPTURE,
            hits=self.hits or int(self.then != ACTIONS[0] or self.place == GRADIENTS),
            condition=self.when,
            seconds=self.wait + ANSWER_SECONDS,
            **{name: getattr(self, name) for name in same},
        ).checked()

    async def perform(self, tunnels: Tunnels) -> Answer:
        """Ask all agents; return soon after a process has answered.

        Raises:
            ConnectionLost: no rank can be asked.
            NoListener: no chosen rank has a process.
            UsageError: a field is invalid.
        """
        from relay_client.agents.requests import ask_agents, ask_first, with_absent
        from relay_core.records import encode

        question = self.question()
        if self.wait and not self.is_last:
            nodes = await ask_first(tunnels, question, _has_answered)
        else:
            nodes = await ask_agents(tunnels, question, within=LAST_SECONDS if self.is_last else None)
        found = [one for node in with_absent(tunnels, question, nodes) for one in _ranks_of(tunnels, node, question)]
        if not found:  # an agent has named ports that are not its own
            raise NoListener("no matching process is registered", hint=LISTING)
        targets = [target for agent in tunnels.roster for target in agent.targets]
        chosen = sum(question.selects(target.rank, target.port) for target in targets)
        ranks = [encode(one) for one in sorted(found, key=lambda one: one.port)]
        return Answer("", {"ranks": ranks, "processes": chosen})


def _has_answered(node: NodeReply) -> bool:
    """Return whether a process has hits or another state, or has waited long enough, in contrast to errors."""
    return any(reply.answer is not None for reply in node.replies.processes)


def _ranks_of(tunnels: Tunnels, node: NodeReply, question: Question) -> Iterator[WatchedRank]:
    from relay_client.agents.requests import replies_of
    from relay_client.watching import WatchedRank
    from relay_core.agent_api.evaluation import MAX_SHOWN
    from relay_core.foreign import escape_controls, terminal_text

    for reply in replies_of(tunnels, node, question):
        state = reply.read(WatchedRank, lambda text: terminal_text(text[:MAX_SHOWN]))  # a value may have several lines
        yield replace(
            state,
            rank=reply.rank,
            port=reply.port,
            process=f"{node.agent.id} {reply.pid}",
            is_silent=reply.is_silent,
            error=escape_controls(reply.error) or state.error,
        )
