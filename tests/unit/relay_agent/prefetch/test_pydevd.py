"""Facts about a process that answers by itself what an editor is going to ask at a stop."""

import contextlib
import copy
import json
import re
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace

from relay_agent.prefetch.pydevd import Asker
from relay_client.dap.client import DapClient
from relay_core.dap.framing import Message
from relay_core.dap.prefetch import IN_PROCESS, PREFETCH_EVENT, PREFETCH_SET, RequestTemplate
from tests.support.jobs import job

QUESTIONS = [
    RequestTemplate("stackTrace", 0, {"startFrame": 0, "levels": 1}),
    RequestTemplate("scopes"),
    RequestTemplate("variables"),
    RequestTemplate("threads"),
]
THE_PLAN = {"questions": [question.as_json() for question in QUESTIONS]}
CODE = """
    import runpy, threading
    from relay_agent.debuggee.debugger import debugger
    print(debugger.arm(), flush=True)
    debugger.wait_for_attach(30, threading.Event())
    runpy.run_path(sys.argv[1])
"""
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
    return (await client.wait_for_event("stopped", within=30))["body"]


async def step(client: DapClient, thread: int, **plan: object) -> Message:
    """Let the next line run, by a request that an agent has added a plan to."""
    await client.request("next", {"threadId": thread, PREFETCH_SET: plan}, within=30)
    return await stopped(client)


@contextlib.asynccontextmanager
async def attached(port: int) -> AsyncIterator[DapClient]:
    """Debug."""
    async with await DapClient.connect("127.0.0.1", port) as client:
        await client.attach({}, within=30)
        assert await client.wait_for_event(IN_PROCESS, within=30)
        yield client


@contextlib.asynccontextmanager
async def debuggee(directory: Path, code: str = SCRIPT) -> AsyncIterator[int]:
    """Run a script, and yield the port of its debugger."""
    script = directory / "script.py"
    script.write_text(code)
    async with job(CODE, str(script)) as running:
        yield int(await running.line())


def without_new_ids(body: Message) -> Message:
    """Return an answer without what pydevd makes anew for each."""
    for variable in body.get("variables", ()):
        del variable["variablesReference"]
    return body


async def test_answers_come_behind_the_stop(tmp_path: Path):
    """Unasked, they are what the debugger answers to the same requests, and say after which step that is so."""
    async with debuggee(tmp_path) as port, attached(port) as client:
        thread = (await stopped(client))["threadId"]
        for plan in ({"after": 41, **THE_PLAN}, {"after": 42}):
            news = [(await step(client, thread, **plan))[PREFETCH_EVENT]]
            asked = {request["seq"]: request for request in news[0]["asked"]}
            assert [request["command"] for request in asked.values()] == ["stackTrace", "threads"]
            answers: dict[str, Message] = {}
            while len(answers) < len(QUESTIONS):
                news.append((await client.wait_for_event(PREFETCH_EVENT, within=30))["body"])
                asked |= {request["seq"]: request for request in news[-1]["asked"]}
                answers |= {asked[answer["request_seq"]]["command"]: answer for answer in news[-1]["answered"]}
            assert {plan["after"]} == {told["after"] for told in news}
            for request in asked.values():
                asked_now = await client.request(request["command"], request["arguments"], within=30)
                assert without_new_ids(asked_now) == without_new_ids(answers[request["command"]]["body"])
            variables = answers["variables"]["body"]["variables"]
            assert ("number", "7") in [(variable["name"], variable["value"]) for variable in variables]


async def test_answer_that_is_too_large(tmp_path: Path):
    """It is told as a refusal, and the others are not."""
    async with debuggee(tmp_path, LARGE) as port, attached(port) as client:
        await step(client, (await stopped(client))["threadId"], after=5, **THE_PLAN)
        answers: dict[str, Message] = {}
        while len(answers) < len(QUESTIONS):
            news = await client.wait_for_event(PREFETCH_EVENT, within=60)
            answers |= {answer["command"]: answer for answer in news["body"]["answered"]}
        assert [command for command, answer in answers.items() if not answer["success"]] == ["variables"]
        assert re.match("the response has 2[0-9],[0-9]+,[0-9]+ bytes", answers["variables"]["message"])


class Debugger:
    """Stands in for pydevd's: what is to be carried out takes as long as the test says."""

    def __init__(self) -> None:
        self.reader = SimpleNamespace(process_net_command_json=self._process)
        self.done: list[str] = []
        self.begins, self.may_end = threading.Event(), threading.Event()

    def _process(self, _debugger: object, contents: str) -> None:
        self.begins.set()
        assert self.may_end.wait(30)
        self.done.append(json.loads(contents)["command"])


class Command:
    """Stands in for pydevd's message."""

    id = 1
    seq = 2
    _as_bytes = b""

    def __init__(self, _id: int, _seq: int, message: Message, *, is_json: bool) -> None:
        assert is_json
        self.as_dict = message


A_STOP = {"type": "event", "event": "stopped", "body": {"threadId": 1}}
RESUMING = json.dumps({"type": "request", "command": "next", "arguments": {PREFETCH_SET: {"after": 5, **THE_PLAN}}})


def test_plan_is_one_debuggers():
    """Who comes after it, with no plan, hears of none."""
    asker = Asker(Debugger())
    asker.hear(RESUMING)
    asker.hear('{"type": "request", "command": "initialize"}')
    stop = Command(1, 2, A_STOP, is_json=True)
    assert asker.instead_of(stop) == [stop]


def test_questions_come_before_the_next_request():
    """A request that lets the process go on waits for all that was asked at the stop, whoever is asking it just now.

    The editor may have asked the same before, and heard nothing yet.
    """
    debugger = Debugger()
    asker = Asker(debugger)
    asker.hear(RESUMING)
    _, queued = asker.instead_of(Command(1, 2, copy.deepcopy(A_STOP), is_json=True))

    def resume() -> None:
        asker.hear('{"type": "request", "command": "next"}')
        debugger.done.append("next")

    writer, reader = threading.Thread(target=queued.send, args=[None]), threading.Thread(target=resume)
    writer.start()
    assert debugger.begins.wait(30)
    reader.start()
    reader.join(0.05)  # time for one that does not wait
    debugger.may_end.set()
    for thread in (reader, writer):
        thread.join(30)
        assert not thread.is_alive()
    assert debugger.done == ["stackTrace", "threads", "next"]


def test_change_ends_the_round():
    """After a request that may change something nothing more is asked about the stop."""
    debugger = Debugger()
    debugger.may_end.set()
    asker = Asker(debugger)
    for change in (None, '{"type": "request", "command": "evaluate"}'):
        asker.hear(RESUMING)
        (news, _) = asker.instead_of(Command(1, 2, copy.deepcopy(A_STOP), is_json=True))
        if change:
            asker.hear(change)
            assert debugger.done[-2:] == ["stackTrace", "threads"]  # nobody else has come to them
        stack = news.as_dict["body"][PREFETCH_EVENT]["asked"][0]
        answer = {
            "type": "response",
            "request_seq": stack["seq"],
            "success": True,
            "body": {"stackFrames": [{"id": 7}]},
        }
        instead = asker.instead_of(Command(1, 0, answer, is_json=True))
        assert (asker in instead) == (change is None)


def test_what_is_no_json():
    """It is left to pydevd to say so."""
    Asker(Debugger()).hear(b"{")
