"""Named requests to an agent, e.g. `wake/5678` and `stacks`: one JSON object comes back."""

from __future__ import annotations

import json

from relay_client.agents.tunnels import Tunnels
from relay_core.compat import TIMEOUT_ERRORS, timeout
from relay_core.errors import ConnectionLost, ProtocolError, RelayDebugError
from relay_core.net.session.stream import SessionStream
from relay_core.tunnel.payloads import JsonObject

__all__ = ["ask"]

MAX_ANSWER = 32 * 1024 * 1024
"""Bytes; the stacks of eight processes with a hundred threads each, and their variables, have a few MiB."""


async def ask(tunnels: Tunnels, agent_id: str, request: str, *, within: float) -> JsonObject:
    """Return an agent's answer to a request.

    Args:
        tunnels: Has a tunnel to the agent.
        agent_id: As in the roster.
        request: Its name.
        within: Seconds for the whole answer.

    Raises:
        ConnectionLost: the agent cannot be reached, refused, or did not answer in time.
        RelayDebugError: the agent answered that it cannot; its own sentence and hint.
        ProtocolError: the answer is no JSON object, or too long.
    """
    stream = tunnels.open_named(agent_id, request)
    try:
        async with timeout(within):
            await stream.write_eof()
            answer = _decode(await _read_all(stream), request)
    except TIMEOUT_ERRORS:
        stream.abort("no answer in time")
        raise ConnectionLost(
            f"the agent did not answer '{request}' within {within:g} s", hint="the process or its node may be too busy"
        ) from None
    except BaseException:
        stream.abort()
        raise
    if isinstance(error := answer.get("error"), str):
        raise RelayDebugError(error, hint=str(answer.get("hint", "")))
    return answer


async def _read_all(stream: SessionStream) -> bytes:
    received = bytearray()
    while data := await stream.read():
        received += data
        if len(received) > MAX_ANSWER:
            raise ProtocolError("the agent's answer is too long")
    return bytes(received)


def _decode(data: bytes, request: str) -> JsonObject:
    try:
        answer = json.loads(data)
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict):
        raise ProtocolError(f"the agent's answer to '{request}' is no JSON object")
    return answer
