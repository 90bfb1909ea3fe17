"""Facts about the commands in the debug console; tests/integration asks real ranks."""

from typing import cast

import pytest

from relay_client.agents.tunnels import Tunnels
from relay_client.compare.console import Command
from relay_client.verbs.console import answer_as_text


@pytest.mark.parametrize(
    "command",
    [Command("help"), Command("nonsense", "x"), Command("all"), Command("diff"), Command("hang", "3")],
    ids=str,
)
async def test_help(command: Command) -> None:
    """`@help`, an unknown command, and one with an expression too few or too many are answered with the commands."""
    assert (await answer_as_text(cast("Tunnels", None), command)).startswith("use @ranks, ")
