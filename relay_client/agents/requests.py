"""Requests (`relay_core.agent_api.requests`) to an agent, and their responses."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Mapping

from relay_client.agents.roster import AbsentRank, absent_ranks
from relay_client.agents.tunnels import Tunnels
from relay_client.ui.text import parse_chosen_ranks
from relay_core.agent_api.announcement import AgentId, AgentInfo
from relay_core.agent_api.evaluation import SearchStep
from relay_core.agent_api.members import selects_port
from relay_core.agent_api.questions import NodeReplies, Question, Reply
from relay_core.agent_api.requests import Failure, NodeRequest
from relay_core.compat import TIMEOUT_ERRORS, timeout
from relay_core.errors import ConnectionLost, ProtocolError, RelayDebugError
from relay_core.foreign import printable
from relay_core.net.session.exchanges import MAX_BODY
from relay_core.records import encode, parse, parse_or_none

__all__ = ["RESPONSE_MARGIN", "absent_among", "ask_ranks", "send_request", "send_step"]

MAX_RESPONSE = 32 * 1024 * 1024
"""Maximum number of bytes in a response; the stacks of eight processes with a hundred threads each, including
variables, take up a few MiB."""
RESPONSE_MARGIN = 10.0
"""Seconds that an agent has to respond once the time limit of its processes has expired."""
MAX_SENTENCE = 1000
"""Maximum number of characters in an agent's error or hint, which may contain a long path."""


async def send_request(
    tunnels: Tunnels, agent_id: AgentId, request: NodeRequest, *, within: float
) -> Mapping[str, object]:
    """Send a request to an agent and return its response.

    Args:
        tunnels: The client's tunnels.
        agent_id: The agent's id, as in the roster.
        request: The request.
        within: Timeout in seconds for the whole response.

    Raises:
        ConnectionLost: the agent is unreachable, refused the stream, or did not answer in time.
        RelayDebugError: the agent reported a failure; the error contains the agent's sentence and hint.
        ProtocolError: the response is not a JSON object, or is too long.
    """
    if request.prefers_message:
        body = json.dumps(encode(request), separators=(",", ":")).encode()
        if len(body) <= MAX_BODY and (exchanges := tunnels.exchanges(agent_id)) is not None:
            return _checked(_decode(await _within(within, exchanges.request(body), request.name), request.name))
    stream = tunnels.open_request(agent_id, request)
    try:
        async with timeout(within):
            if request.max_body:
                await stream.write(json.dumps(encode(request)).encode())
            await stream.write_eof()
            response = _decode(await stream.read_all(MAX_RESPONSE, "the agent's response"), request.name)
    except TIMEOUT_ERRORS:
        stream.abort("no response in time")
        raise _late(within, request.name) from None
    except BaseException:
        stream.abort()
        raise
    return _checked(response)


async def ask_ranks(tunnels: Tunnels, question: Question) -> list[Reply]:
    """Return the replies of all chosen processes, in the order of their ports; none if no process is chosen.

    A rank without a registered process, or whose agent does not respond, has a reply with the reason.
    """

    async def replies_of(agent: AgentInfo) -> list[Reply]:
        try:
            response = await send_request(tunnels, agent.id, question, within=question.seconds + RESPONSE_MARGIN)
        except RelayDebugError as error:
            return [
                Reply(target.port, target.rank, error=error.sentence, is_silent=True)
                for target in agent.targets
                if question.selects(target.rank, target.port)
            ]
        return list(parse(NodeReplies, response, _clean).processes)

    found = [reply for replies in await asyncio.gather(*map(replies_of, tunnels.roster)) for reply in replies]
    ports = {reply.port for reply in found}
    absent = absent_among(tunnels, question.ranks, question.ports) if found else []
    found += [Reply(one.port, one.rank, error=one.reason, is_silent=True) for one in absent if one.port not in ports]
    return sorted(found, key=lambda reply: reply.port)


def absent_among(tunnels: Tunnels, ranks: str, ports: str) -> list[AbsentRank]:
    """Return those ranks without a registered process that a request chooses by its fields `ranks` and `ports`.

    Raises:
        UsageError: a list is invalid.
    """
    return [one for one in absent_ranks(tunnels.roster, parse_chosen_ranks(ranks)) if selects_port(ports, one.port)]


async def send_step(tunnels: Tunnels, agent_id: AgentId, step: SearchStep, *, within: float) -> bytes:
    """Send a step of a search to an agent and return its response.

    Raises:
        ConnectionLost: the agent is unreachable, or did not answer in time.
        RelayDebugError: the agent no longer has the search.
    """
    exchanges = tunnels.exchanges(agent_id)
    if exchanges is None:
        raise ConnectionLost("there is currently no connection to the agent")
    response = await _within(within, exchanges.request(step.encode()), "search")
    if response[:1] == b"{":
        _checked(_decode(response, "search"))
    return response


async def _within(seconds: float, response: Awaitable[bytes], request: str) -> bytes:
    try:
        async with timeout(seconds):
            return await response
    except TIMEOUT_ERRORS:
        raise _late(seconds, request) from None


def _late(seconds: float, request: str) -> ConnectionLost:
    return ConnectionLost(
        f"the agent did not answer '{request}' within {seconds:g} s",
        hint="check whether the process or its node is overloaded",
    )


def _checked(response: Mapping[str, object]) -> Mapping[str, object]:
    """Return a response, unless it reports a failure."""
    if failure := parse_or_none(Failure, response, _clean):
        raise RelayDebugError(failure.error, hint=failure.hint)
    return response


def _clean(text: str) -> str:
    return printable(text, MAX_SENTENCE)


def _decode(data: bytes, request: str) -> Mapping[str, object]:
    try:
        response = json.loads(data)
    except (ValueError, RecursionError):
        response = None
    if not isinstance(response, dict):
        raise ProtocolError(f"the agent's response to '{request}' is not a JSON object")
    return response
