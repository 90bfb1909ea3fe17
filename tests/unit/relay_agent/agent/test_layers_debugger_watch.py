"""Facts about how the agent notices a debugger that no longer responds."""

import asyncio

import pytest

from relay_agent.agent.layers import CHECK_INTERVAL, MAX_PENDING, PATIENCE, DebuggerWatch
from relay_core.dap.framing import encode
from relay_core.layers.layer import Abort, Output
from relay_core.layers.piece import MAX_PARSED
from tests.support.sessions.layers import Alone


class Wire:
    """A watched connection; the test chooses what the process answers."""

    def __init__(self) -> None:
        self.now = 100.0
        self.answers: list[asyncio.Future[bool | None]] = []
        self.watch = Alone(DebuggerWatch(self._check))
        self.seq = 0

    def _check(self) -> "asyncio.Future[bool | None]":
        self.answers.append(asyncio.get_running_loop().create_future())
        return self.answers[-1]

    def request(self, command: str, **arguments: object) -> int:
        """Send a request of the editor, and return its number."""
        self.seq += 1
        message = encode({"seq": self.seq, "type": "request", "command": command, "arguments": arguments})
        (onward,) = self.watch.receive_peer(message, self.now)
        assert message == onward.data
        return self.seq

    def respond(self, number: int) -> None:
        """Send a response of debugpy."""
        message = encode({"seq": 1, "type": "response", "request_seq": number, "success": True})
        (onward,) = self.watch.receive_local(message, self.now)
        assert message == onward.data

    def wait(self, seconds: float) -> list[Output]:
        """Let time pass, and return what the layer does then."""
        self.now += seconds
        return self.watch.tick(self.now)


async def test_silent_debugger_of_a_running_process():
    """The session ends with the reason when a prompt request is late and the process answers."""
    wire = Wire()
    wire.request("continue")
    wire.request("evaluate")
    assert [] == wire.wait(PATIENCE - 1)
    assert [] == wire.answers
    assert [] == wire.wait(1)
    wire.answers[0].set_result(True)
    assert [] == wire.wait(CHECK_INTERVAL / 2)
    (abort,) = wire.wait(CHECK_INTERVAL / 2)
    assert abort == Abort("debugpy has not answered 'continue' for 30 s; the job continues, and you can attach again")


async def test_debugger_of_another_program():
    """The session ends without the claim that the job continues if the agent cannot check the process."""
    wire = Wire()
    wire.request("next")
    wire.wait(PATIENCE)
    wire.answers[0].set_result(None)
    (abort,) = wire.wait(CHECK_INTERVAL)
    assert abort == Abort("debugpy has not answered 'next' for 30 s; its session was ended, and you can attach again")


@pytest.mark.parametrize("is_running", [True, None])
async def test_debugger_of_a_child(is_running: bool | None):
    """The reason for the end of a child's session does not claim that the child continues or can be debugged again."""
    wire = Wire()
    wire.respond(wire.request("attach", subProcessId=4711))
    wire.request("next")
    wire.wait(PATIENCE)
    wire.answers[0].set_result(is_running)
    (abort,) = wire.wait(CHECK_INTERVAL)
    assert abort == Abort(
        "debugpy has not answered 'next' for 30 s; the session of child process 4711 was ended; if the process is "
        "stopped, it stays stopped; to kill it, run 'kill 4711' on its node"
    )


async def test_busy_process():
    """A process that does not answer, or executes something for the debugger, keeps its session and is asked again."""
    wire = Wire()
    wire.request("pause")
    for _ in range(2):
        assert [] == wire.wait(PATIENCE)
        wire.answers[-1].set_result(False)
        assert [] == wire.wait(CHECK_INTERVAL)
    assert 2 == len(wire.answers)


async def test_check_that_fails():
    """An error while the process is asked does not count as an answer."""
    wire = Wire()
    wire.request("pause")
    wire.wait(PATIENCE)
    wire.answers[0].set_exception(OSError())
    assert [] == wire.wait(CHECK_INTERVAL)


async def test_response_during_the_check():
    """A debugger that responds after all keeps its session."""
    wire = Wire()
    number = wire.request("threads")
    wire.wait(PATIENCE)
    wire.respond(number)
    wire.answers[0].set_result(True)
    assert [] == wire.wait(PATIENCE)
    assert wire.watch.next_deadline() is None


@pytest.mark.parametrize("command", ["variables", "attach", "disconnect", "stackTrace"])
async def test_requests_that_may_take_long(command: str):
    """As long as such a request is the oldest, nothing is late; the time of the next one counts from its response."""
    wire = Wire()
    slow = wire.request(command)
    wire.request("threads")
    assert wire.watch.next_deadline() is None
    assert [] == wire.wait(100 * PATIENCE)
    wire.respond(slow)
    assert wire.now + PATIENCE == wire.watch.next_deadline()


async def test_unanswered_requests_before_an_answered_one():
    """A response shows that those to earlier requests have come."""
    wire = Wire()
    wire.request("variables")
    wire.respond(wire.request("threads"))
    assert {} == wire.watch.layer._pending


async def test_evaluate_without_a_response():
    """A request is late although an earlier `evaluate` is not answered: the adapter does not wait for its response."""
    wire = Wire()
    wire.request("evaluate")
    wire.request("next")
    assert wire.now + PATIENCE == wire.watch.next_deadline()


@pytest.mark.parametrize("command", ["evaluate", "variables", "source"])
async def test_response_that_is_passed_on_in_parts(command: str):
    """A response that is too long to be parsed also ends its request, so that the next one can be late."""
    wire = Wire()
    body = {"result": "x" * MAX_PARSED}
    answered = wire.request(command)
    wire.request("next")
    message = encode({"seq": 1, "type": "response", "request_seq": answered, "success": True, "body": body})
    for start in range(0, len(message), 65536):
        wire.watch.receive_local(message[start : start + 65536], wire.now)
    assert ["next"] == list(wire.watch.layer._pending.values())
    wire.wait(PATIENCE)
    wire.answers[0].set_result(True)
    (abort,) = wire.wait(CHECK_INTERVAL)
    assert isinstance(abort, Abort)


async def test_debugger_that_answers_nothing():
    """The layer notes a limited number of requests, and is removed when there are more."""
    wire = Wire()
    for _ in range(MAX_PENDING):
        wire.request("variables")
    assert not wire.watch.is_finished
    wire.request("variables")
    assert wire.watch.is_finished
