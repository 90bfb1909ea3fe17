"""Requests (`relay_core.agent_api.requests`) to an agent, and their responses."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from relay_client.agents.roster import absent_ranks
from relay_client.agents.tunnels import Tunnels, no_process_error
from relay_client.ui.text import LISTING, parse_chosen_ranks
from relay_core.agent_api.announcement import AgentId, AgentInfo
from relay_core.agent_api.members import selects_port
from relay_core.agent_api.questions import NodeReplies, Question, Reply
from relay_core.agent_api.requests import Failure, NodeRequest
from relay_core.compat import TIMEOUT_ERRORS, timeout
from relay_core.errors import ConnectionLost, NoListener, RelayDebugError
from relay_core.foreign import escape_controls, printable
from relay_core.json_values import json_object
from relay_core.net.tasks import TaskSet
from relay_core.records import encode, parse, parse_or_none

MAX_SENTENCE = 1000
"""Maximum number of characters in an agent's error or hint, which may contain a long path."""
GRACE = 0.03
"""Seconds that the other agents have once one has answered: their ranks are usually at the same step."""
ROUND_TRIP = 0.5
"""Seconds that each agent has in any case: otherwise, agents that always answer first would keep others from it."""


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
    stream = tunnels.open_request(agent_id, request)
    try:
        async with timeout(within):
            if isinstance(request, Question):
                await stream.write(json.dumps(encode(request)).encode())
            await stream.write_eof()
            received = await stream.read_all(request.max_response, "the agent's response")
            response = json_object(received, f"the agent's response to '{request.name}'")
    except TIMEOUT_ERRORS:
        stream.abort("no response in time")
        sentence = f"the agent did not answer '{request.name}' within {within:g} s"
        if outage := tunnels.outage(agent_id):
            raise ConnectionLost(f"{sentence}: {outage.sentence}", hint=outage.hint) from None
        raise ConnectionLost(sentence, hint="check whether the process or its node is overloaded") from None
    except BaseException:
        stream.abort()
        raise
    if failure := parse_or_none(Failure, response, _clean):
        raise RelayDebugError(failure.error, hint=failure.hint)
    return response


@dataclass(frozen=True)
class NodeReply:
    """What one agent has replied to a question."""

    agent: AgentInfo
    """Its announcement; an empty one for ranks without a registered process."""
    replies: NodeReplies = field(default_factory=NodeReplies)
    error: str = ""
    """Why the replies are missing."""
    hint: str = ""
    is_lost: bool = False
    """Whether the connection to the agent is lost, or it did not answer in time."""


async def ask_agents(
    tunnels: Tunnels, question: Question, agents: Iterable[AgentInfo] | None = None, *, within: float | None = None
) -> list[NodeReply]:
    """Return the replies of each agent, or the reason why there are none.

    Args:
        tunnels: The client's tunnels.
        question: The question.
        agents: Agents to ask; None for all.
        within: Timeout in seconds for each agent; None for as long as it may need.
    """
    asked = tunnels.roster if agents is None else agents
    return list(await asyncio.gather(*(reply_of(tunnels, agent, question, within) for agent in asked)))


async def ask_first(tunnels: Tunnels, question: Question, is_enough: Callable[[NodeReply], bool]) -> list[NodeReply]:
    """Ask all agents a question that they answer later, and return the replies soon after one of them is enough.

    Args:
        tunnels: The client's tunnels.
        question: The question; agents that have not answered by then are asked in vain.
        is_enough: Whether a reply is worth returning; without any such reply, all agents are awaited.
    """
    loop = asyncio.get_running_loop()
    earliest, ends = loop.time() + ROUND_TRIP, None
    async with TaskSet() as tasks:
        asked = [
            tasks.spawn(reply_of(tunnels, agent, question), name=f"ask {question.name}") for agent in tunnels.roster
        ]
        running = set(asked)
        while running:
            left = None if ends is None else max(0.0, ends - loop.time())
            done, running = await asyncio.wait(running, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            if not done:
                break
            if ends is None and any(is_enough(task.result()) for task in done):
                ends = max(earliest, loop.time() + GRACE)
        return [task.result() for task in asked if task.done()]


async def reply_of(tunnels: Tunnels, agent: AgentInfo, question: Question, within: float | None = None) -> NodeReply:
    """Return the replies of an agent's processes; by default, wait as long as the agent may need."""
    limit = question.seconds + question.agent_margin if within is None else within
    try:
        answer = await send_request(tunnels, agent.id, question, within=limit)
        return NodeReply(agent, parse(NodeReplies, answer, _clean))
    except RelayDebugError as error:
        is_lost = isinstance(error, ConnectionLost)
        return NodeReply(agent, error=escape_controls(error.sentence), hint=error.hint, is_lost=is_lost)


def check_connected(nodes: Iterable[NodeReply], consequence: str = "") -> None:
    """Raise ConnectionLost if no process was asked because the connections to agents are lost.

    Args:
        nodes: The replies.
        consequence: The end of the error's sentence.
    """
    nodes = list(nodes)
    lost = [node for node in nodes if node.is_lost]
    if lost and not any((node.replies.processes or node.error) and not node.is_lost for node in nodes):
        raise ConnectionLost(f"no rank can be queried: {lost[0].error}{consequence}", hint=lost[0].hint)


def with_absent(tunnels: Tunnels, question: Question, nodes: Sequence[NodeReply]) -> list[NodeReply]:
    """Return the replies of all agents, and those of ranks without a registered process.

    Raises:
        ConnectionLost: no process was asked.
        NoListener: no chosen rank has a process.
    """
    check_connected(nodes)
    if any(node.replies.processes or node.error for node in nodes):
        return [*nodes, NodeReply(AgentInfo(AgentId(""), host=""), NodeReplies(_absent(tunnels, question, nodes)))]
    if not question.ports and (ranks := parse_chosen_ranks(question.ranks)):
        raise no_process_error((target for agent in tunnels.roster for target in agent.targets), ranks)
    raise NoListener("no matching process is registered", hint=LISTING)


def _absent(tunnels: Tunnels, question: Question, nodes: Iterable[NodeReply]) -> tuple[Reply, ...]:
    answered = {reply.port for node in nodes for reply in node.replies.processes}
    return tuple(
        Reply(one.port, one.rank, error=one.reason, is_silent=True)
        for one in absent_ranks(tunnels.roster, parse_chosen_ranks(question.ranks))
        if selects_port(question.ports, one.port) and one.port not in answered
    )


async def ask_ranks(tunnels: Tunnels, question: Question) -> list[Reply]:
    """Return the replies of all chosen processes, in the order of their ports.

    A rank without a registered process, or whose agent does not respond, has a reply with the reason.

    Raises:
        ConnectionLost, NoListener: as of `with_absent`.
    """
    nodes = with_absent(tunnels, question, await ask_agents(tunnels, question))
    found = (reply for node in nodes for reply in replies_of(tunnels, node, question))
    return sorted(found, key=lambda reply: reply.port)


def replies_of(tunnels: Tunnels, node: NodeReply, question: Question) -> list[Reply]:
    """Return the replies of an agent's processes; if the agent has not replied, the reason for each chosen process.

    A reply about a port that the agent has not registered, or that another agent owns, is left out.
    """
    targets = node.agent.targets if node.error else ()
    chosen = (target for target in targets if question.selects(target.rank, target.port))
    failed = (Reply(target.port, target.rank, error=node.error, is_silent=True) for target in chosen)
    return [one for one in (*node.replies.processes, *failed) if has_port(node.agent, one.port, tunnels)]


def has_port(agent: AgentInfo, port: int, tunnels: Tunnels) -> bool:
    """Return whether a port is an agent's; if nobody has it any longer, whether it was when the agent was asked."""
    if claim := tunnels.roster.owner(port, time.time()):
        return claim.agent.id == agent.id
    return not agent.id or port in {target.port for target in agent.targets}


def _clean(text: str) -> str:
    return printable(text, MAX_SENTENCE)
