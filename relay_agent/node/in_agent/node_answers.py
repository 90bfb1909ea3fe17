"""Answers of a node to the requests of clients: what is asked of which processes, comparisons, and files of the job."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from relay_agent.collectives.ras import ask_ras
from relay_agent.node.in_agent.registered_process import RegisteredProcess
from relay_core.agent_api.evaluation import Difference, Evaluate, Selection, Value
from relay_core.agent_api.event_files import (
    MAX_CHUNK,
    EventData,
    EventDataRequest,
    EventFile,
    EventFiles,
    EventFilesRequest,
    is_event_file,
)
from relay_core.agent_api.push import Phase, Push, Pushed
from relay_core.agent_api.questions import NodeReplies, Question, ReadCollectives, Reply
from relay_core.agent_api.requests import Digest, FileDigest, NodeRequest, Ready, Response, Wake
from relay_core.agent_api.watch import Watch
from relay_core.compat import TIMEOUT_ERRORS, timeout
from relay_core.difference_search import Search
from relay_core.errors import ConfigurationError
from relay_core.grouping import by_key
from relay_core.net.tasks import TaskSet
from relay_core.records import encode

WATCH_GATHER_TIME = 0.03
"""Seconds from the first answer to a watch to the response: other ranks reach the line at about the same time."""
SEARCH_SECONDS = 5.0
"""Time limit for all searches together: shorter than the time for which a client still waits after the time limit of
the processes. If the agent has no result by then, the client searches.
"""


class Process(Protocol):
    """A process that answers questions."""

    async def reply(self, question: Question) -> Reply:
        """Return the reply of the process."""


async def ask_each(question: Question, processes: Sequence[Process]) -> NodeReplies:
    """Return the replies of processes, in their order."""
    return NodeReplies(tuple(await asyncio.gather(*(process.reply(question) for process in processes))))


async def compare(request: Evaluate, processes: Sequence[Process]) -> NodeReplies:
    """Return the replies of processes.

    If the request compares complete values, each value except the most common one includes its first difference from
    the most common one.
    """
    found = await ask_each(request, processes)
    return await _with_differences(request, processes, found) if request.selection == Selection() else found


async def _with_differences(request: Evaluate, processes: Sequence[Process], replies: NodeReplies) -> NodeReplies:
    values = [reply.result(Value) for reply in replies.processes]
    groups = by_key((value.digest, index) for index, value in enumerate(values) if not value.error)
    found = list(replies.processes)
    usual = max(groups.values(), key=lambda group: (len(group), group), default=[])

    async def search(group: list[int]) -> None:
        one, other = group[0], usual[0]
        difference = await _search(request, (processes[one], processes[other]), (values[one], values[other]))
        for index in group:
            answer = encode(replace(values[index], members=(), difference=difference))
            found[index] = replace(found[index], answer=answer)

    with contextlib.suppress(*TIMEOUT_ERRORS):
        async with timeout(SEARCH_SECONDS):
            await asyncio.gather(*(search(group) for group in groups.values() if group is not usual))
    return NodeReplies(tuple(found))


async def _search(request: Evaluate, pair: tuple[Process, Process], values: tuple[Value, Value]) -> Difference:
    """Return the first difference between the values of two processes."""
    first, second = pair
    search = Search(*values)
    while (selection := search.next()) is not None:
        part = replace(request, selection=selection)
        replies = await ask_each(part, (first, second))
        search.received(*(reply.result(Value) for reply in replies.processes))
    assert search.difference is not None  # noqa: S101 - this is how a search ends
    return replace(search.difference, other=values[1].digest)


async def first_answers(question: Watch, processes: Sequence[Process]) -> NodeReplies:
    """Return the replies that arrive within a short time after the first answer, in the order of the processes.

    Errors are answers only if there is no other one: a process that has exited must not make the client ask at once.
    """
    async with TaskSet() as tasks:
        asked = [tasks.spawn(process.reply(question), name=f"watch {index}") for index, process in enumerate(processes)]
        waiting = set(asked)
        while waiting and not any(each.done() and not each.result().error for each in asked):
            _, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        if waiting:
            await asyncio.wait(waiting, timeout=WATCH_GATHER_TIME)
        return NodeReplies(tuple(each.result() for each in asked if each.done()))


# Files of the job that the agent serves: digests of source files, and TensorBoard event files.

MAX_SOURCE = 4 * 1024 * 1024
"""Maximum size in bytes of a source file whose digest is computed."""


def file_digest(path: Path) -> FileDigest:
    """Return the digest of a regular file of at most `MAX_SOURCE` bytes."""
    try:
        if not path.is_file() or path.stat().st_size > MAX_SOURCE:
            return FileDigest()
        return FileDigest.of(path.read_bytes())
    except (OSError, ValueError):  # no permission to read it, or the path contains a zero byte
        return FileDigest()


def digest_in(process: RegisteredProcess, path: str) -> FileDigest:
    """Return the digest of a file as the process executes it: its code may have been replaced since it was loaded."""
    file = Path(process.info.cwd or "/", path)
    replaced = process.sources.get(os.path.realpath(file)) if process.sources else None
    return file_digest(file) if replaced is None else FileDigest(replaced)


# The TensorBoard event files that the agent serves: those below the directories that the job has announced.
#
# No other file can be read: after all links have been followed, the file must be a regular file below its directory and
# must have the name of an event file.

MAX_FOLDERS = 10_000
"""Maximum number of folders that are searched; a job that announces its home directory must not occupy the agent for
minutes."""


def list_files(directories: Sequence[str]) -> EventFiles:
    """Return the event files below these directories, with their sizes."""
    found = (sorted(_below(*each), key=lambda file: file.path) for each in enumerate(directories))
    return EventFiles(tuple(itertools.chain.from_iterable(found)))


def _below(number: int, root: str) -> Iterator[EventFile]:
    top = Path(root).resolve()
    for visited, (folder, _, names) in enumerate(os.walk(top)):
        if visited == MAX_FOLDERS:
            return
        for name in names:
            file = Path(folder, name)
            if is_event_file(name) and _is_inside(file, top):
                yield EventFile(f"{number}/{file.relative_to(top).as_posix()}", file.stat().st_size)


def _is_inside(file: Path, top: Path) -> bool:
    """Return whether a file, with all links followed, is a regular file below `top` with the name of an event file."""
    try:
        real = file.resolve()
        return real.is_relative_to(top) and is_event_file(real.name) and real.is_file()
    except (OSError, RuntimeError, ValueError):  # no permission, a loop of links, a zero byte
        return False


def read_data(directories: Sequence[str], request: EventDataRequest) -> EventData:
    """Return the bytes of a file, starting at an offset.

    Raises:
        ConfigurationError: the file is not one that `list_files` returns.
    """
    number, _, path = request.path.partition("/")
    if number.isascii() and number.isdecimal() and int(number) < len(directories):
        top = Path(directories[int(number)]).resolve()
        file = top / path
        if is_event_file(file.name) and _is_inside(file, top):
            return _read(file.resolve(), request.offset)
    raise ConfigurationError(f"'{request.path}' is not an event file on this node")


def _read(file: Path, offset: int) -> EventData:
    try:
        with file.open("rb") as opened:
            opened.seek(offset)
            return EventData(opened.read(MAX_CHUNK))
    except OSError as error:
        raise ConfigurationError(f"cannot read the event file: {error.strerror}") from None


# Answers the requests of clients: for each type of request, what is asked of which processes of the node.


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
        self._answers: Mapping[type[NodeRequest], Callable[[Any], Awaitable[Response]]] = {
            Wake: self._wake,
            Digest: lambda request: asyncio.to_thread(digest_in, self._process(request.port), request.path),
            ReadCollectives: self._with_ras,
            Evaluate: lambda request: compare(request, self._chosen(request)),
            Push: self._push,
            Watch: self._watch,
            EventFilesRequest: lambda _: asyncio.to_thread(list_files, self._event_directories()),
            EventDataRequest: lambda request: asyncio.to_thread(read_data, self._event_directories(), request),
        }

    async def answer(self, request: NodeRequest) -> Response:
        """Return the response to a request; raises RelayDebugError if the request failed."""
        return await self._answers.get(type(request), self._replies)(request)

    async def _replies(self, question: Question) -> NodeReplies:
        """Ask each chosen process; the agent does not read the answers."""
        return await ask_each(question, self._chosen(question))

    def _chosen(self, question: Question) -> list[RegisteredProcess]:
        return [process for process in self._processes() if question.selects(process.info.rank, process.logical_port)]

    async def _with_ras(self, question: ReadCollectives) -> NodeReplies:
        found, ras = await asyncio.gather(self._replies(question), ask_ras(os.environ))
        return found if ras is None else replace(found, node=encode(ras))

    async def _wake(self, request: Wake) -> Ready:
        await self._process(request.port).locate()
        return Ready()

    def _process(self, port: int) -> RegisteredProcess:
        for process in self._processes():
            if process.logical_port == port:
                return process
        raise ConfigurationError(f"no process on this node has port {port}")

    async def _push(self, request: Push) -> NodeReplies:
        async def reply_of(process: RegisteredProcess) -> Reply:
            reply = await process.reply(request)
            process.code_replaced(reply.read(Pushed))
            return reply

        found = NodeReplies(tuple(await asyncio.gather(*map(reply_of, self._chosen(request)))))
        if request.phase is Phase.COMMIT:
            self._on_push()
        return found

    async def _watch(self, request: Watch) -> NodeReplies:
        is_waiting = request.wait and not request.is_last
        return await (first_answers if is_waiting else ask_each)(request, self._chosen(request))

    def _event_directories(self) -> list[str]:
        """Return the directories with event files; a directory keeps its number while the agent runs."""
        found = (directory for process in self._processes() for directory in process.event_directories)
        self._event_roots.update(dict.fromkeys(found))
        return list(self._event_roots)
