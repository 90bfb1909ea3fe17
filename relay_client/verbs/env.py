"""The verb `env`: the environment variables of ranks, as the job sees them now."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from relay_client.verbs.verb import Answer, Command, Verb
from relay_core.exit_codes import NO_VALUE
from relay_core.foreign import escape_controls
from relay_core.grouping import by_key

if TYPE_CHECKING:
    from relay_client.agents.tunnels import Tunnels
    from relay_core.agent_api.questions import Environment, Reply


@dataclass(frozen=True)
class Env(Verb):
    """Return the environment variables of processes; the processes replace secrets."""

    name = "env"
    command = Command(
        "show the environment variables of ranks",
        "Shows the environment variables of ranks as the job sees them now. Of several ranks, variables that differ "
        "are shown first. Values that look like secrets are replaced by *** before they leave the job. Exits with "
        "status 17 if no rank has answered.",
        {"ranks": "global ranks, such as 3 or 0-7, or all"},
    )
    ranks: str
    """A list of global ranks, or `all`."""
    ports: str = ""
    """Logical ports, to choose one of several jobs; "" for all."""

    async def perform(self, tunnels: Tunnels) -> Answer:
        """Ask all agents.

        Raises:
            ConnectionLost: no rank can be asked.
            NoListener: no chosen rank has a process.
        """
        from relay_client.agents.requests import ask_ranks
        from relay_core.agent_api.questions import Environment, ReadEnvironment

        replies = await ask_ranks(tunnels, ReadEnvironment(ranks=self.ranks, ports=self.ports))
        found = [(reply, reply.read(Environment, escape_controls)) for reply in replies]
        status = NO_VALUE if all(reply.error for reply in replies) else 0
        return Answer(_as_text(found), {"processes": [_as_object(*one) for one in found]}, status)


def _as_object(reply: Reply, environment: Environment) -> dict[str, object]:
    known = {"rank": reply.rank, "port": reply.port}
    if reply.error:
        return {**known, "error": reply.error}
    return {**known, "variables": dict(environment.variables), "left_out": environment.left_out}


def _as_text(found: Sequence[tuple[Reply, Environment]]) -> str:
    """Return one line for each variable, and before it, the ranks if not all of them have the same value."""
    from relay_client.compare import groups
    from relay_core.agent_api.members import Member

    def label(replies: Sequence[Reply]) -> str:
        return groups.label([Member(reply.port, reply.rank) for reply in replies])

    lines = [f"{label([reply])}: {reply.error}" for reply, _ in found if reply.error]
    answered = [one for one in found if not one[0].error]
    differing, common = [], []
    for name in sorted({name for _, environment in answered for name in environment.variables}):
        values = by_key((environment.variables.get(name), reply) for reply, environment in answered)
        for value, replies in values.items():
            text = f"{name} is not set" if value is None else f"{name}={value}"
            if len(values) == 1:
                common.append(text)
            else:
                differing.append(f"{label(replies)}: {text}")
    omitted = [
        f"{label([reply])}: {environment.left_out} more variables"
        for reply, environment in answered
        if environment.left_out
    ]
    return "\n".join([*lines, *differing, *common, *omitted])
