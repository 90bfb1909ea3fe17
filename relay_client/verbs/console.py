"""The verbs as commands in the debug console: `@all EXPRESSION`, `@diff EXPRESSION`, `@hang` and `@ranks`."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from relay_client.agents.tunnels import Tunnels
from relay_client.compare.console import HELP, Command
from relay_client.verbs.hang import Hang
from relay_client.verbs.targets import Targets
from relay_client.verbs.values import Diff, Evaluate
from relay_client.verbs.verb import Answer, Verb
from relay_core.errors import RelayDebugError

_VERBS: Mapping[tuple[str, bool], Callable[..., Verb]] = {
    ("all", True): Evaluate, ("diff", True): Diff, ("hang", False): Hang, ("ranks", False): Targets
}  # fmt: skip
"""By name, and whether an expression follows."""


async def answer_as_text(tunnels: Tunnels, command: Command) -> str:
    """Return what the debug console shows: the table of values or ranks, the verdict on a hang, or the commands."""
    if (verb := _VERBS.get((command.name, bool(command.expression)))) is None:
        return HELP
    request = verb(command.expression) if command.expression else verb()
    try:
        return with_hint(await request.perform(tunnels))
    except RelayDebugError as error:
        return error.sentence


def with_hint(answer: Answer) -> str:
    """Return the text of an answer, followed by its hint."""
    return answer.text + (f"\nhint: {answer.hint}" if answer.hint else "")
