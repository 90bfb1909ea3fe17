"""Requests (`relay_core.agent_api.requests`) to an agent, and their responses."""

from __future__ import annotations

import json
from collections.abc import Mapping

from relay_client.agents.tunnels import Tunnels
from relay_client.ui.text import printable
from relay_core.agent_api.announcement import AgentId
from relay_core.agent_api.files.event_files import EventDataRequest, EventFilesRequest
from relay_core.agent_api.requests import Collectives, Digest, Evaluate, Failure, Push, Stacks, Wake
from relay_core.compat import TIMEOUT_ERRORS, timeout
from relay_core.errors import ConnectionLost, ProtocolError, RelayDebugError
from relay_core.net.session.stream import SessionStream

__all__ = ["send_request"]

MAX_RESPONSE = 32 * 1024 * 1024
"""Maximum bytes of a response; the stacks of eight processes with a hundred threads each, with variables, take a few
MiB."""
MAX_SENTENCE = 1000
"""Maximum characters of an agent's error or hint, which may contain a long path."""


async def send_request(
    tunnels: Tunnels,
    agent_id: AgentId,
    request: Wake | Stacks | Collectives | Digest | Evaluate | Push | EventFilesRequest | EventDataRequest,
    *,
    within: float,
) -> Mapping[str, object]:
    """Send a request to an agent and return its response.

    Args:
        tunnels: The client's tunnels.
        agent_id: The agent's id, as in the roster.
        request: A request with a single response.
        within: Timeout in seconds for the whole response.

    Raises:
        ConnectionLost: the agent is unreachable, refused the stream, or did not answer in time.
        RelayDebugError: the agent reported a failure; the error has the agent's sentence and hint.
        ProtocolError: the response is not a JSON object, or too long.
    """
    stream = tunnels.open_request(agent_id, request)
    try:
        async with timeout(within):
            if isinstance(request, Evaluate | Push):
                await stream.write(json.dumps(request.body()).encode())
            await stream.write_eof()
            response = _decode(await _read_all(stream), request.name)
    except TIMEOUT_ERRORS:
        stream.abort("no response in time")
        raise ConnectionLost(
            f"the agent did not answer '{request.name}' within {within:g} s",
            hint="the process or its node may be overloaded",
        ) from None
    except BaseException:
        stream.abort()
        raise
    if failure := Failure.parse(response, _clean):
        raise RelayDebugError(failure.error, hint=failure.hint)
    return response


def _clean(text: str) -> str:
    return printable(text, MAX_SENTENCE)


async def _read_all(stream: SessionStream) -> bytes:
    received = bytearray()
    while data := await stream.read():
        received += data
        if len(received) > MAX_RESPONSE:
            raise ProtocolError("the agent's response is too long")
    return bytes(received)


def _decode(data: bytes, request: str) -> Mapping[str, object]:
    try:
        response = json.loads(data)
    except (ValueError, RecursionError):
        response = None
    if not isinstance(response, dict):
        raise ProtocolError(f"the agent's response to '{request}' is not a JSON object")
    return response
