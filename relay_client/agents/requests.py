"""Sends a request of `relay_core.agent_api.requests` to an agent, and reads the JSON object that it answers."""

from __future__ import annotations

import json
from collections.abc import Mapping

from relay_client.agents.tunnels import Tunnels
from relay_client.ui.text import printable
from relay_core.agent_api.announcement import AgentId
from relay_core.agent_api.requests import Failure, Stacks, Wake
from relay_core.compat import TIMEOUT_ERRORS, timeout
from relay_core.errors import ConnectionLost, ProtocolError, RelayDebugError
from relay_core.net.session.stream import SessionStream

__all__ = ["ask"]

MAX_ANSWER = 32 * 1024 * 1024
"""Bytes; the stacks of eight processes with a hundred threads each, and their variables, have a few MiB."""
MAX_SENTENCE = 1000
"""Characters of an agent's reason or hint; a path in it may be long."""


async def ask(tunnels: Tunnels, agent_id: AgentId, request: Wake | Stacks, *, within: float) -> Mapping[str, object]:
    """Return an agent's answer to a request.

    Args:
        tunnels: Has a tunnel to the agent.
        agent_id: As in the roster.
        request: A request that has one answer.
        within: Seconds for the whole answer.

    Raises:
        ConnectionLost: the agent cannot be reached, refused, or did not answer in time.
        RelayDebugError: the agent answered that it cannot; its own sentence and hint.
        ProtocolError: the answer is not a JSON object, or too long.
    """
    stream = tunnels.open_request(agent_id, request)
    try:
        async with timeout(within):
            await stream.write_eof()
            answer = _decode(await _read_all(stream), request.name)
    except TIMEOUT_ERRORS:
        stream.abort("no answer in time")
        raise ConnectionLost(
            f"the agent did not answer '{request.name}' within {within:g} s",
            hint="the process or its node may be too busy",
        ) from None
    except BaseException:
        stream.abort()
        raise
    if failure := Failure.parse(answer, _clean):
        raise RelayDebugError(failure.error, hint=failure.hint)
    return answer


def _clean(text: str) -> str:
    return printable(text, MAX_SENTENCE)


async def _read_all(stream: SessionStream) -> bytes:
    received = bytearray()
    while data := await stream.read():
        received += data
        if len(received) > MAX_ANSWER:
            raise ProtocolError("the agent's answer is too long")
    return bytes(received)


def _decode(data: bytes, request: str) -> Mapping[str, object]:
    try:
        answer = json.loads(data)
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict):
        raise ProtocolError(f"the agent's answer to '{request}' is not a JSON object")
    return answer
