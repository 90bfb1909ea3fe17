"""Facts about a session whose debugger sends unusual messages."""

import asyncio
import contextlib

import pytest

from relay_client.dap import RequestFailed
from relay_client.pdb import session
from relay_client.pdb.session import Frame, NotStopped, Session

UNREADABLE = "^the job's debugger sent a message that could not be read$"
STOPPED = {"event": "stopped", "body": {"reason": "pause", "threadId": 1}}


class Adapter:
    """A client whose adapter gives one response to every request, after sending some events."""

    def __init__(self, *events, body=None):
        self.events = asyncio.Queue()
        for event in events:
            self.events.put_nowait(event)
        self._body = body or {}

    async def attach(self, breakpoints, **_arguments):
        return {path: [] for path in breakpoints}

    async def request(self, _command, _arguments, *, within):
        return self._body

    async def wait_for_event(self, *, within):
        return await self.events.get()


async def ignore(*_arguments):
    """Do nothing."""


def opened(adapter, on_child=ignore):
    """Return a session with this adapter."""
    return Session(adapter, lambda _text: None, ignore, on_child)


@contextlib.asynccontextmanager
async def attached(*events, on_child=ignore):
    """A session whose adapter has sent these events."""
    async with opened(Adapter(*events), on_child) as found:
        await found.attach({}, pause=False)
        yield found


@pytest.mark.parametrize(
    ("category", "hint", "shown"),
    [
        ("console", "check pathMappings in launch.json", "breakpoints are not hit."),
        ("console", "let the job wait", "breakpoints are not hit. hint: let the job wait"),
        ("stdout", "check launch.json", "breakpoints are not hit. hint: check launch.json"),
    ],
)
async def test_hints_for_editors(category, hint, shown):
    """A hint of the agent about the editor's files is not shown; other hints and the job's output are."""
    lines = []
    body = {"category": category, "output": f"breakpoints are not hit. hint: {hint}\n"}
    found = Session(Adapter({"event": "output", "body": body}, STOPPED), lines.append, ignore, ignore)
    async with found:
        await found.attach({}, pause=False)
        assert await found.wait()
    assert [f"{shown}\n"] == lines


@pytest.mark.parametrize(("category", "is_shown"), [("important", False), ("stdout", True)])
async def test_a_skipped_frame_is_not_shown(category, is_shown):
    """Debugpy's remark on a step past hidden frames is not shown; output of the job with the same text is."""
    shown = []
    body = {"category": category, "output": f"{session.SKIPPED}\nNote: more"}
    found = Session(Adapter({"event": "output", "body": body}, STOPPED), shown.append, ignore, ignore)
    async with found:
        await found.attach({}, pause=False)
        assert await found.wait()
        assert shown == [body["output"]] * is_shown


def child(pid):
    """Return the event that announces a child."""
    return {"event": "debugpyAttach", "body": {"subProcessId": pid}}


@pytest.mark.parametrize(
    "event",
    [
        {"event": "output", "body": [1]},
        {"event": "debugpyAttach"},
        {"event": "debugpyAttach", "body": {"subProcessId": "zz"}},
    ],
)
async def test_an_event_that_cannot_be_read(event):
    """An event that cannot be read ends the session, which states this reason."""
    async with attached(event) as found:
        assert await found.wait()
        assert "the job's debugger sent a message that could not be read" == found.end_reason
        assert isinstance(found.lost, RequestFailed)


@pytest.mark.parametrize(
    ("ask", "body"),
    [
        (Session.threads, {"threads": 7}),
        (Session.threads, {"threads": [{"id": []}]}),
        (Session.main_stack, {"stackFrames": 7}),
        (Session.main_stack, {"stackFrames": [{"id": 1, "name": "f", "source": None, "line": 3}]}),
        (Session.main_stack, {"stackFrames": [{"id": 1, "name": "f", "line": "zz"}]}),
        (Session.variables, {"scopes": [7]}),
        (Session.variables, {"scopes": [{"variablesReference": 1}], "variables": [{"evaluateName": "a"}]}),
    ],
)
async def test_a_response_that_cannot_be_read(ask, body):
    """A request whose response cannot be read fails, with this reason."""
    found = opened(Adapter(body=body))
    found.frames = [Frame(1, "f", "/f.py", 1)]
    with pytest.raises(RequestFailed, match=UNREADABLE):
        await ask(found)


@pytest.mark.parametrize(
    ("pause", "hint"),
    [
        (
            True,
            "enter 'c' to wait for the stop; 'w' shows the stack, and 'relay-client stacks --locals' its variables",
        ),
        (False, "enter 'c' to wait until it stops, then press Ctrl-C to pause it"),
    ],
)
async def test_a_command_that_needs_a_stop(pause, hint):
    """The hint suggests a pause unless one was requested already."""
    async with opened(adapter := Adapter()) as found:
        await found.attach({}, pause=pause)
        with pytest.raises(NotStopped) as error:
            found.require_stopped()
        assert hint == error.value.hint
        adapter.events.put_nowait(STOPPED)
        assert await found.wait()
        assert not found.is_pausing


async def test_what_is_unfinished():
    """It is the attachment, then the pause of a running job, and then a command."""
    async with opened(adapter := Adapter()) as found:
        assert "not attached" == found.unfinished
        await found.attach({}, pause=True)
        assert "the pause takes effect when the job next executes Python code" == found.unfinished
        adapter.events.put_nowait(STOPPED)
        assert await found.wait()
        assert "the job may still be executing the command" == found.unfinished


async def test_the_thread_of_a_stop_cannot_be_read():
    """Selecting the thread of a stop fails if the adapter has named it by a text."""
    found = opened(Adapter())
    found.reason = {"threadId": "zz"}
    with pytest.raises(RequestFailed, match=UNREADABLE):
        await found.select_stopped_thread()


class Unwinding(Adapter):
    """A client whose adapter answers each `stepOut` with the next of these stops, and the stack at that stop."""

    def __init__(self, *stops):
        super().__init__(STOPPED)
        self.moves = []
        self._stops = list(stops)

    async def request(self, command, _arguments, *, within):
        if command == "stepOut":
            self.moves.append(command)
            reason, thread, self._body = self._stops.pop(0)
            self.events.put_nowait({"event": "stopped", "body": {"reason": reason, "threadId": thread}})
        return self._body


def stack(depth):
    """Return a stack with this number of frames."""
    return {"stackFrames": [{"id": number, "name": "f", "line": 1} for number in range(depth)]}


@pytest.mark.parametrize(
    ("stops", "is_there"),
    [
        ([("step", 1, stack(3)), ("step", 1, stack(2))], True),
        ([("step", 1, stack(2))], True),
        ([("step", 1, stack(1))], False),
        ([("breakpoint", 1, stack(5))], False),
        ([("step", 1, stack(3)), ("exception", 1, stack(3))], False),
        ([("step", 2, stack(3))], False),
    ],
)
async def test_leaving_what_the_selected_frame_called(stops, is_there):
    """It ends where the selected frame is the innermost one, or at the first other stop."""
    async with opened(adapter := Unwinding(*stops)) as found:
        await found.attach({}, pause=False)
        assert await found.wait()
        found.thread, found.level = 1, 2
        found.frames = [Frame(number, "f", "/f.py", 1) for number in range(4)]
        assert is_there == await found.leave_called()
        assert len(stops) == len(adapter.moves)


@pytest.mark.parametrize("text", ["-" * 200_000 + "1", "(" * 5000, "{[]}", "9" * 5000, "name"])
async def test_a_value_that_is_not_a_literal(text):
    """A value that Python cannot parse as a literal fails the request."""
    found = opened(Adapter(body={"result": text}))
    found.frames = [Frame(1, "f", "/f.py", 1)]
    with pytest.raises(RequestFailed, match="^the debugger answered '"):
        await found.value("x")


async def test_children_take_turns():
    """Eight children are connected to at a time, each once; the next one follows when one of them is finished."""
    current, finish = [], asyncio.Event()

    async def on_child(pid):
        current.append(pid)
        await finish.wait()

    async with attached(*map(child, [*range(20), *range(20)]), STOPPED, on_child=on_child) as found:
        assert await found.wait()
        while len(current) < session.MAX_CHILD_SESSIONS:
            await asyncio.sleep(0)
        assert list(range(8)) == current
        finish.set()
        while len(current) < 20:
            await asyncio.sleep(0)
        assert list(range(20)) == current


async def test_too_many_children(monkeypatch):
    """Children beyond a limit are ignored until others have been released."""
    monkeypatch.setattr(session, "MAX_CHILDREN", 2)
    released = []

    async def on_child(pid):
        released.append(pid)

    async with opened(adapter := Adapter(*map(child, range(4)), STOPPED), on_child) as found:
        await found.attach({}, pause=False)
        assert await found.wait()
        while len(released) < 2:
            await asyncio.sleep(0)
        adapter.events.put_nowait(child(4))
        while len(released) < 3:
            await asyncio.sleep(0)
        assert [0, 1, 4] == released
