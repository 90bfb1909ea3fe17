"""The verb `stacks`: what all ranks are executing, grouped by identical stack."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from relay_client.verbs.verb import Answer, Command, Verb

if TYPE_CHECKING:
    from relay_client.agents.tunnels import Tunnels


@dataclass(frozen=True)
class Stacks(Verb):
    """Return the current stacks of the processes, grouped by identical stack."""

    name = "stacks"
    command = Command(
        "show what all ranks are doing, grouped by stack",
        "Shows the stacks of all ranks, grouped by identical stack, outliers first. Also works for "
        "processes that hang.",
        {
            "locals": "include the local variables of each frame",
            "all_threads": "include threads other than the main one",
        },
    )
    ranks: str = "all"
    """A list of global ranks, or `all`."""
    locals: bool = False
    """Whether to include the local variables of each frame."""
    all_threads: bool = False
    """Whether to include threads other than the main one."""
    color: bool = False
    """Whether the text has colours for a terminal."""

    async def perform(self, tunnels: Tunnels) -> Answer:
        """Ask all agents, and group the stacks.

        Raises:
            ConnectionLost: no rank can be asked.
            NoListener: no chosen rank has a process.
        """
        from relay_client.stacks import collect_stacks, grouped_stacks, show_stacks

        replies = await collect_stacks(tunnels, self.ranks, with_locals=self.locals)
        text = show_stacks(replies, locals=self.locals, all_threads=self.all_threads, color=self.color)
        return Answer(text, {"groups": grouped_stacks(replies, all_threads=self.all_threads)})
