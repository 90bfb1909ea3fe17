"""Facts about the error of an agent that does not answer."""

import asyncio
from typing import Any, cast

import pytest

from relay_client.agents.requests import send_request
from relay_client.agents.tunnels import RECONNECTING, Tunnels, disconnected_error
from relay_core.agent_api.announcement import AgentId
from relay_core.agent_api.questions import ReadEnvironment
from relay_core.errors import ConnectionLost, NoListener
from relay_core.net.session.client import LinkState, LinkStatus


class Silent:
    """A tunnel whose agent never answers, and the stream of the request."""

    def __init__(self, state: LinkState) -> None:
        self._status = LinkStatus(state, 0.0, "no data")

    def open_request(self, *_request: object) -> "Silent":
        return self

    def outage(self, _agent_id: AgentId) -> NoListener | None:
        is_connected = self._status.state is LinkState.CONNECTED
        return None if is_connected else disconnected_error("node-1", self._status)

    async def write(self, _data: bytes) -> None:
        pass

    async def write_eof(self) -> None:
        pass

    async def read_all(self, *_limit: object) -> Any:
        await asyncio.Event().wait()

    def abort(self, _reason: str) -> None:
        pass


@pytest.mark.parametrize("state", [LinkState.CONNECTED, LinkState.SILENT])
async def test_agent_that_does_not_answer(state: LinkState) -> None:
    """If the tunnel is known to carry no data, the error states so, and its hint does not blame the process."""
    silent = cast("Tunnels", Silent(state))
    with pytest.raises(ConnectionLost) as caught:
        await send_request(silent, AgentId("a"), ReadEnvironment(), within=0.01)
    expected = "the agent did not answer 'env' within 0.01 s"
    if state is LinkState.SILENT:
        assert caught.value.sentence.startswith(f"{expected}: the tunnel to node-1 is not answering (since ")
        assert RECONNECTING == caught.value.hint
    else:
        assert expected == caught.value.sentence
        assert "overloaded" in caught.value.hint
