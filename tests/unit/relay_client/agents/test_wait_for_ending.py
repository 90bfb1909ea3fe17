"""Facts about how a program learns how a process has ended."""

import asyncio
from dataclasses import replace
from types import SimpleNamespace

import pytest

from relay_client.agents import wait_for_ending
from relay_client.agents.roster import Roster
from relay_client.agents.wait_for_ending import how_process_ended
from relay_core.agent_api.announcement import AgentInfo, Ending, TargetInfo

RANK = TargetInfo(5678, rank=0, pid=44)
NODE = AgentInfo("a", host="vm", targets=(RANK,), endings=(Ending(5678, 43, status=1),))
PROCESS = ("a", 5678, 44)
EXITING = Ending(5678, 44, error="KeyError: 'x'", is_final=False)


class Tunnels:
    """What `how_process_ended` uses of the tunnels."""

    def __init__(self) -> None:
        self.roster = Roster()
        self.roster.put(NODE, 0)
        self.search = SimpleNamespace(changed=asyncio.Event())

    async def announce(self, *endings: Ending) -> None:
        """Let a waiting program see an announcement."""
        await asyncio.sleep(0)
        self.roster.put(replace(NODE, targets=(), endings=endings), 1)
        before, self.search.changed = self.search.changed, asyncio.Event()
        before.set()


async def test_the_end_is_announced_in_two_steps() -> None:
    """The status that follows the announcement of an exiting process is waited for."""
    tunnels = Tunnels()
    waiting = asyncio.ensure_future(how_process_ended(tunnels, PROCESS))
    await tunnels.announce(EXITING)
    await asyncio.sleep(0)
    assert not waiting.done()
    await tunnels.announce(replace(EXITING, status=1, is_final=True))
    assert "ended with status 1: KeyError: 'x'" == await waiting


async def test_the_status_is_not_announced(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is known in time is the answer; the end of an earlier process on the port is none."""
    monkeypatch.setattr(wait_for_ending, "END_PATIENCE", 0.01)
    monkeypatch.setattr(wait_for_ending, "EXIT_PATIENCE", 0.01)
    tunnels = Tunnels()
    assert "" == await how_process_ended(tunnels, PROCESS)
    await tunnels.announce(EXITING)
    assert "has ended: KeyError: 'x'" == await how_process_ended(tunnels, PROCESS)


async def test_the_agent_is_gone() -> None:
    """Nothing more is expected of an agent that is gone."""
    tunnels = Tunnels()
    tunnels.roster.remove("a")
    assert "" == await how_process_ended(tunnels, PROCESS)
