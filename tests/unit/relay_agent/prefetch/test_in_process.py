"""Facts about prefetch inside the debugged process."""

import contextlib
import copy
import json
import re
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace

from relay_agent.prefetch.in_process import PydevdPrefetcher
from relay_client.dap import DapClient
from relay_core.dap.framing import Message
from relay_core.dap.prefetch import IN_PROCESS, PREFETCH_EVENT, PREFETCH_SET, RequestTemplate
from tests.support.armed import waiting_script
from tests.support.deadline import DEADLINE

TEMPLATES = [
    RequestTemplate("stackTrace", 0, {"startFrame": 0, "levels": 1}),
    RequestTemplate("scopes"),
    RequestTemplate("variables"),
    RequestTemplate("threads"),
]
THE_SET = {"requests": [template.as_json() for template in TEMPLATES]}
SCRIPT = """\
import time

def work():
    number = 7
    breakpoint()
    square = number * number
    double = number + number
    return square + double

while True:
    work()
    time.sleep(0.01)
"""


LARGE = """\
globals().update({f"text_{number}": "x" * 1000 for number in range(18_000)})
breakpoint()
print("a line")
print("and another")
"""


async def stopped(client: DapClient) -> Message:
    """Return the body of the next stop."""
    return (await client.wait_for_event("stopped", within=DEADLINE))["body"]


async def step(client: DapClient, thread: int, **argument: object) -> Message:
    """Let the next line run, by a request to which an agent has added a prefetch set."""
    await client.request("next", {"threadId": thread, PREFETCH_SET: argument}, within=DEADLINE)
    return await stopped(client)


@contextlib.asynccontextmanager
async def attached(port: int) -> AsyncIterator[DapClient]:
    """Debug."""
    async with await DapClient.connect("127.0.0.1", port, within=DEADLINE) as client:
        await client.attach({}, within=DEADLINE)
        assert await client.wait_for_event(IN_PROCESS, within=DEADLINE)
        yield client


@contextlib.asynccontextmanager
async def debuggee(directory: Path, code: str = SCRIPT) -> AsyncIterator[int]:
    """Run a script, and yield the port of its debugger."""
    async with waiting_script(directory, code) as (_, port):
        yield port


def without_new_ids(body: Message) -> Message:
    """Return a response without the ids that pydevd creates for each response."""
    for variable in body.get("variables", ()):
        del variable["variablesReference"]
    return body


async def test_responses_follow_the_stop(tmp_path: Path):
    """They equal the responses to the same requests of an editor, and have the number of the step."""
    async with debuggee(tmp_path) as port, attached(port) as client:
        thread = (await stopped(client))["threadId"]
        for argument in ({"after": 41, **THE_SET}, {"after": 42}):
            events = [(await step(client, thread, **argument))[PREFETCH_EVENT]]
            asked = {request["seq"]: request for request in events[0]["requested"]}
            assert [request["command"] for request in asked.values()] == ["stackTrace", "threads"]
            answers: dict[str, Message] = {}
            while len(answers) < len(TEMPLATES):
                events.append((await client.wait_for_event(PREFETCH_EVENT, within=DEADLINE))["body"])
                asked |= {request["seq"]: request for request in events[-1]["requested"]}
                answers |= {asked[answer["request_seq"]]["command"]: answer for answer in events[-1]["responses"]}
            assert {argument["after"]} == {body["after"] for body in events}
            for request in asked.values():
                asked_now = await client.request(request["command"], request["arguments"], within=DEADLINE)
                assert without_new_ids(asked_now) == without_new_ids(answers[request["command"]]["body"])
            variables = answers["variables"]["body"]["variables"]
            assert ("number", "7") in [(variable["name"], variable["value"]) for variable in variables]


async def test_response_that_is_too_large(tmp_path: Path):
    """It becomes an error response; the others are successful."""
    async with debuggee(tmp_path, LARGE) as port, attached(port) as client:
        await step(client, (await stopped(client))["threadId"], after=5, **THE_SET)
        answers: dict[str, Message] = {}
        while len(answers) < len(TEMPLATES):
            event = await client.wait_for_event(PREFETCH_EVENT, within=DEADLINE)
            answers |= {answer["command"]: answer for answer in event["body"]["responses"]}
        assert [command for command, answer in answers.items() if not answer["success"]] == ["variables"]
        assert re.match("the response is 2[0-9],[0-9]+,[0-9]+ bytes", answers["variables"]["message"])


class Debugger:
    """A stand-in for pydevd's debugger: processing a request takes as long as the test determines."""

    def __init__(self) -> None:
        self.reader = SimpleNamespace(process_net_command_json=self._process)
        self.writer = SimpleNamespace(add_command=lambda command: self.sent.extend(self.prefetcher.replace(command)))
        self.prefetcher = PydevdPrefetcher(self, lambda _writer, _message: None)
        self.sent: list[object] = []
        self.done: list[str] = []
        self.begins, self.may_end = threading.Event(), threading.Event()

    def _process(self, _debugger: object, contents: str) -> None:
        self.begins.set()
        assert self.may_end.wait(DEADLINE)
        self.done.append(json.loads(contents)["command"])


class Command:
    """A stand-in for pydevd's message."""

    id = 1
    seq = 2
    _as_bytes = b""

    def __init__(self, _id: int, _seq: int, message: Message, *, is_json: bool) -> None:
        assert is_json
        self.as_dict = message


A_STOP = {"type": "event", "event": "stopped", "body": {"threadId": 1}}
RESUMING = json.dumps({"type": "request", "command": "next", "arguments": {PREFETCH_SET: {"after": 5, **THE_SET}}})


def test_prefetch_set_belongs_to_one_debugger():
    """The next debugger, which sends no prefetch set, gets no prefetch events."""
    prefetcher = PydevdPrefetcher(Debugger(), lambda _writer, _message: None)
    prefetcher.request_received(RESUMING)
    prefetcher.request_received('{"type": "request", "command": "initialize"}')
    stop = Command(1, 2, A_STOP, is_json=True)
    assert prefetcher.replace(stop) == [stop]


def test_prefetch_requests_are_processed_before_the_next_request():
    """A request that resumes the process waits for all prefetch requests of the stop, whichever thread processes them.

    The editor may have sent the same requests before, and the client may be waiting for their responses.
    """
    debugger = Debugger()
    prefetcher = PydevdPrefetcher(debugger, lambda _writer, _message: None)
    prefetcher.request_received(RESUMING)
    _, queued = prefetcher.replace(Command(1, 2, copy.deepcopy(A_STOP), is_json=True))

    def resume() -> None:
        prefetcher.request_received('{"type": "request", "command": "next"}')
        debugger.done.append("next")

    writer, reader = threading.Thread(target=queued.send, args=[None]), threading.Thread(target=resume)
    writer.start()
    assert debugger.begins.wait(DEADLINE)
    reader.start()
    reader.join(0.05)  # time for one that does not wait
    debugger.may_end.set()
    for thread in (reader, writer):
        thread.join(DEADLINE)
        assert not thread.is_alive()
    assert debugger.done == ["stackTrace", "threads", "next"]


def test_change_ends_the_stop():
    """After a request that may change something, no more requests are sent for the stop."""
    debugger = Debugger()
    debugger.may_end.set()
    prefetcher = PydevdPrefetcher(debugger, lambda _writer, _message: None)
    for change in (None, '{"type": "request", "command": "evaluate"}'):
        prefetcher.request_received(RESUMING)
        (stop, _) = prefetcher.replace(Command(1, 2, copy.deepcopy(A_STOP), is_json=True))
        if change:
            prefetcher.request_received(change)
            assert debugger.done[-2:] == ["stackTrace", "threads"]  # no other thread has processed them
        stack = stop.as_dict["body"][PREFETCH_EVENT]["requested"][0]
        answer = {
            "type": "response",
            "request_seq": stack["seq"],
            "success": True,
            "body": {"stackFrames": [{"id": 7}]},
        }
        instead = prefetcher.replace(Command(1, 0, answer, is_json=True))
        assert (prefetcher in instead) == (change is None)


def waiting_for_variables() -> Debugger:
    """Return a debugger at a stop, whose prefetch request for variables has no response yet."""
    debugger = Debugger()
    debugger.may_end.set()
    debugger.prefetcher.request_received(RESUMING)
    stop, _ = debugger.prefetcher.replace(Command(1, 2, copy.deepcopy(A_STOP), is_json=True))
    numbers = {request["command"]: request["seq"] for request in stop.as_dict["body"][PREFETCH_EVENT]["requested"]}
    bodies = {
        "threads": {"threads": []},
        "stackTrace": {"stackFrames": [{"id": 7}]},
        "scopes": {"scopes": [{"variablesReference": 8}]},
    }
    for number, (command, body) in enumerate(bodies.items()):
        response = {"request_seq": numbers.get(command, max(numbers.values()) + number - 1), "body": body}
        debugger.prefetcher.replace(respond(response))
    return debugger


def respond(response: Message) -> Command:
    return Command(1, 0, {"type": "response", "success": True, **response}, is_json=True)


def event(name: str, body: Message) -> Command:
    return Command(1, 0, {"type": "event", "event": name, "body": body}, is_json=True)


def names(messages: list[object]) -> list[object]:
    return [message.as_dict["event"] for message in messages if isinstance(message, Command)]


def test_watch_expressions():
    """The stop is prefetched again, with the number of the request, in an event before the response."""
    debugger = waiting_for_variables()
    request = {"seq": 3, "type": "request", "command": "evaluate", "arguments": {"context": "watch"}}
    request["arguments"][PREFETCH_SET] = {"after": 9}
    debugger.prefetcher.request_received(json.dumps(request))
    result = respond({"request_seq": 3, "body": {"result": "1"}})
    event, answer, requests = debugger.prefetcher.replace(result)
    assert (result, debugger.prefetcher) == (answer, requests)
    assert 9 == event.as_dict["body"]["after"]
    commands = ["stackTrace", "scopes", "variables", "threads"]
    assert commands == [each["command"] for each in event.as_dict["body"]["requested"]], "their ids are known"


def test_events_during_a_slow_request():
    """From `continued` on, events wait for the response to the prefetch request that has caused them."""
    debugger = waiting_for_variables()
    caused = [event("continued", {}), event("output", {}), event("stopped", {"threadId": 1})]
    assert ["output"] == names(debugger.prefetcher.replace(event("output", {})))
    assert [[], [], []] == [debugger.prefetcher.replace(each) for each in caused]
    number = next(iter(debugger.prefetcher._engine._pending))
    released = debugger.prefetcher.replace(respond({"request_seq": number, "body": {"variables": []}}))
    assert [PREFETCH_EVENT, "continued", "output", "stopped"] == names(released)
    assert PREFETCH_EVENT in released[3].as_dict["body"], "the second stop is prefetched like any other"


def test_events_do_not_wait_for_a_process_that_resumes():
    """A request that may resume the process releases them: the response may never come."""
    debugger = waiting_for_variables()
    for each in (event("continued", {}), event("stopped", {"threadId": 1})):
        assert [] == debugger.prefetcher.replace(each)
    debugger.prefetcher.request_received('{"type": "request", "command": "continue"}')
    assert ["continued", "stopped"] == names(debugger.sent)
    assert ["continued"] == names(debugger.prefetcher.replace(event("continued", {})))


def test_invalid_json():
    """Reporting it is left to pydevd."""
    PydevdPrefetcher(Debugger(), lambda _writer, _message: None).request_received(b"{")
