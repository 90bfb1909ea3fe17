"""The verbs as commands in the debug console: `@all EXPRESSION`, `@diff EXPRESSION` and `@hang`."""

from __future__ import annotations

from relay_client.agents.tunnels import Tunnels
from relay_client.compare.console import Command
from relay_client.verbs.hang import Hang
from relay_client.verbs.values import Diff, Evaluate
from relay_client.verbs.verb import Answer
from relay_core.errors import RelayDebugError

__all__ = ["answer_as_text", "with_hint"]


async def answer_as_text(tunnels: Tunnels, command: Command) -> str:
    """Return what the debug console shows: the table of values, the verdict on a hang, or why there is none."""
    request = Hang() if command.name == "hang" else {"all": Evaluate, "diff": Diff}[command.name](command.expression)
    try:
        return with_hint(await request.perform(tunnels))
    except RelayDebugError as error:
        return error.sentence


def with_hint(answer: Answer) -> str:
    """Return the text of an answer, followed by its hint."""
    return answer.text + (f"\nhint: {answer.hint}" if answer.hint else "")
