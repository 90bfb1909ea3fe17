"""Facts about an agent without a network; what it does with one is in the integration tests."""

import asyncio
from dataclasses import dataclass, replace

import pytest

from relay_agent.agent import agent as agent_module
from relay_agent.agent.agent import Agent
from relay_agent.agent.port_targets import PortTarget
from relay_core.agent_api.announcement import State, TargetInfo
from relay_core.auth.sas_credentials import SasKeyCredential
from relay_core.hyco.address import Endpoint
from tests.support.machine import secrets
from tests.support.machine.deadline import DEADLINE


@dataclass(frozen=True)
class TargetInState(PortTarget):
    """A port whose process is in a state."""

    state: State = State.UNKNOWN

    def describe(self) -> TargetInfo:
        return replace(super().describe(), state=self.state)


@pytest.mark.parametrize(
    ("state", "needed"),
    [(State.WAITING, True), (State.CRASHED, True), (State.RUNNING, False), (State.UNKNOWN, False)],
)
async def test_an_agent_is_needed_while_a_process_is_held(state: State, needed: bool) -> None:
    """Without a client, the agent's retries are prompt only for a process that is held until a debugger attaches."""
    credential = SasKeyCredential("listen", secrets.new_key())
    agent = Agent(Endpoint("localhost", 1, "myhc"), credential, {5678: TargetInState(5678, 5678, state=state)})
    assert needed is agent._is_needed()


async def test_targets_without_room_in_the_announcement(caplog: pytest.LogCaptureFixture) -> None:
    """One line states how many targets are not announced."""
    credential = SasKeyCredential("listen", secrets.new_key())
    targets = {port: PortTarget(port, port) for port in range(10_001, 20_001)}
    agent = Agent(Endpoint("localhost", 1, "myhc"), credential, targets)
    agent.publish()
    (line,) = [record.getMessage() for record in caplog.records if "announcing" in record.getMessage()]
    assert line.startswith("not announcing 8000 of 10000 targets (those with the highest ports): ")


async def test_a_process_exits_after_its_last_change_is_announced(monkeypatch: pytest.MonkeyPatch) -> None:
    """The agent confirms an exit only once a pending announcement is sent: the container may stop right after that."""
    monkeypatch.setattr(agent_module, "ANNOUNCEMENT_INTERVAL", 10 * DEADLINE)
    target = PortTarget(5678, 5678)
    agent = Agent(Endpoint("localhost", 1, "myhc"), SasKeyCredential("listen", secrets.new_key()), {5678: target})
    for _ in range(2):
        agent.publish()
    leaving = asyncio.create_task(agent.drain(target, within=10 * DEADLINE))
    await asyncio.sleep(0)
    assert not leaving.done()
    agent._announcing.flush()
    await asyncio.wait_for(leaving, DEADLINE)
