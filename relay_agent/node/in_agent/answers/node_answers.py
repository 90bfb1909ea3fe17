"""Answers the requests of clients: for each type of request, what is asked of which processes of the node."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from relay_agent.collectives.ras import ask_ras
from relay_agent.node.in_agent.answers.comparison import OfferedSearches, collect_values
from relay_agent.node.in_agent.answers.job_files import digest_in, list_files, read_data
from relay_agent.node.in_agent.registered_process import RegisteredProcess
from relay_core.agent_api.collectives import NodeCollectives
from relay_core.agent_api.evaluation import Evaluate, NodeValues, SearchStep
from relay_core.agent_api.event_files import EventData, EventDataRequest, EventFiles, EventFilesRequest
from relay_core.agent_api.members import grouped
from relay_core.agent_api.push import NodePushed, Phase, Push
from relay_core.agent_api.questions import NodeReplies, Question
from relay_core.agent_api.requests import Collectives, Digest, FileDigest, NodeRequest, Ready, Response, Stacks, Wake
from relay_core.agent_api.stacks import NodeStacks
from relay_core.errors import ConfigurationError

__all__ = ["NodeAnswers"]


class NodeAnswers:
    """Answers the requests to one agent.

    Args:
        processes: Returns the processes of the node in the order of their ports.
        on_push: Called when processes may have replaced code, which the agent announces.
    """

    def __init__(self, processes: Callable[[], Sequence[RegisteredProcess]], on_push: Callable[[], None]) -> None:
        self._processes = processes
        self._on_push = on_push
        self._event_roots: dict[str, None] = {}
        """Directories with event files, in the order in which they were announced."""
        self._searches = OfferedSearches()
        self._answers: Mapping[type[NodeRequest], Callable[[Any], Awaitable[Response]]] = {
            Wake: self._wake,
            Digest: self._digest,
            Stacks: self._stacks,
            Collectives: self._collectives,
            Evaluate: self._values,
            Push: self._push,
            EventFilesRequest: self._event_files,
            EventDataRequest: self._event_data,
        }

    def __repr__(self) -> str:
        return f"<NodeAnswers {self._searches}>"

    async def answer(self, request: NodeRequest) -> Response:
        """Return the response to a request; raises RelayDebugError if the request failed."""
        if isinstance(request, Question):
            return await self._replies(request)
        return await self._answers[type(request)](request)

    async def search(self, step: SearchStep) -> bytes:
        """Continue the search for the first difference from a value on another node; raises like `answer`."""
        return await self._searches.answer(step)

    async def _replies(self, question: Question) -> NodeReplies:
        """Ask each chosen process; the agent does not read the answers."""
        asked = [process for process in self._processes() if question.selects(process.info.rank, process.logical_port)]
        return NodeReplies(tuple(await asyncio.gather(*(process.reply(question) for process in asked))))

    async def _wake(self, request: Wake) -> Ready:
        await self._process(request.port).locate()
        return Ready()

    async def _digest(self, request: Digest) -> FileDigest:
        return await asyncio.to_thread(digest_in, self._process(request.port), request.path)

    def _process(self, port: int) -> RegisteredProcess:
        for process in self._processes():
            if process.logical_port == port:
                return process
        raise ConfigurationError(f"no process on this node has port {port}")

    async def _stacks(self, request: Stacks) -> NodeStacks:
        responses = (process.stacks(with_locals=request.locals) for process in self._processes())
        return NodeStacks(tuple(await asyncio.gather(*responses)))

    async def _collectives(self, _request: Collectives) -> NodeCollectives:
        reports = asyncio.gather(*(process.collectives() for process in self._processes()))
        found, ras = await asyncio.gather(reports, ask_ras(os.environ))
        return NodeCollectives(tuple(found), ras)

    async def _values(self, request: Evaluate) -> NodeValues:
        asked = [process for process in self._processes() if request.selects(process.info.rank, process.logical_port)]
        values = await collect_values(request, asked)
        return NodeValues(self._searches.offer(request, asked, values), request.is_message)

    async def _push(self, request: Push) -> NodePushed:
        asked = [process for process in self._processes() if request.selects(process.info.rank)]
        found = NodePushed(grouped(await asyncio.gather(*(process.push(request) for process in asked))))
        if request.phase is Phase.COMMIT:
            self._on_push()
        return found

    async def _event_files(self, _request: EventFilesRequest) -> EventFiles:
        return await asyncio.to_thread(list_files, self._event_directories())

    async def _event_data(self, request: EventDataRequest) -> EventData:
        return await asyncio.to_thread(read_data, self._event_directories(), request)

    def _event_directories(self) -> list[str]:
        """Return the directories with event files; a directory keeps its number while the agent runs."""
        found = (directory for process in self._processes() for directory in process.event_directories)
        self._event_roots.update(dict.fromkeys(found))
        return list(self._event_roots)
