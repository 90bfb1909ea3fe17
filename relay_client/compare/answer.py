"""Answers commands in the debug console: asks all ranks and returns a table of values or the verdict on a hang."""

from __future__ import annotations

from relay_client.agents.tunnels import Tunnels
from relay_client.compare.collect import collect_values
from relay_client.compare.console import Question
from relay_client.compare.differences import find_differences
from relay_client.compare.groups import odd_ones_first
from relay_client.compare.render import hint_for, show_values
from relay_client.hang.examine import examine
from relay_client.hang.output import verdict_as_text
from relay_core.agent_api.evaluation import Evaluate
from relay_core.agent_api.requests import Collectives

__all__ = ["answer_as_text", "compare_as_text"]


async def answer_as_text(tunnels: Tunnels, question: Question) -> str:
    """Return what the debug console shows: the table of values, or the verdict on a hang."""
    if isinstance(question, Collectives):
        return verdict_as_text(await examine(tunnels, None)) or "no rank is registered"
    return await compare_as_text(tunnels, question)


async def compare_as_text(tunnels: Tunnels, request: Evaluate) -> str:
    """Return a table of the values in all ranks, followed by a hint if a name is unknown in running ranks."""
    groups = odd_ones_first(await collect_values(tunnels, request))
    differences = None if request.selection is None else await find_differences(tunnels, request, groups)
    hint = hint_for(groups)
    return show_values(groups, differences) + (f"\nhint: {hint}" if hint else "")
