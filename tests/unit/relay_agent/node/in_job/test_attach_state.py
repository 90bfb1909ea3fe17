"""Facts about the states of the way to a debugger."""

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay_agent.node.in_job.attach_state import TRANSITIONS, AttachState, State
from relay_core.errors import RelayDebugError

FAILURE = RelayDebugError("the agent failed")


def reached(*reports: State) -> AttachState:
    """Return the state after these reports."""
    state = AttachState()
    for report in reports:
        state.report(report, FAILURE)
    return state


@given(st.lists(st.sampled_from(State)))
def test_it_follows_the_table(reports: list[State]) -> None:
    """A report that is not in the row of the current state changes nothing."""
    expected = State.CONNECTING
    for report in reports:
        expected = report if report in TRANSITIONS[expected] else expected
    assert expected is reached(*reports).state


def test_every_state_can_be_left_except_the_last() -> None:
    """Each state has a row, and HOPELESS is final."""
    assert [State.HOPELESS] == [state for state in State if not TRANSITIONS[state]]
    assert all(State.HOPELESS in TRANSITIONS[state] for state in State if state is not State.HOPELESS)


def test_a_successor_registers() -> None:
    """Until it reports something else, the state is what its predecessor reported last."""
    assert State.LISTENING is reached(State.REGISTERED, State.LISTENING, State.REGISTERED).state
    assert State.UNREACHABLE is reached(State.REGISTERED, State.UNREACHABLE, State.REGISTERED).state


def test_an_outage_does_not_end_listening() -> None:
    """A process that waits for a debugger keeps waiting if its agent loses the relay."""
    assert State.LISTENING is reached(State.LISTENING, State.UNREACHABLE).state


def test_the_reason_ends_with_the_state() -> None:
    """An agent that listens after all has no obstacle."""
    state = reached(State.REGISTERED, State.UNREACHABLE)
    assert state.obstacle is FAILURE
    state.report(State.LISTENING)
    assert state.obstacle is None


@pytest.mark.parametrize(
    ("state", "names"),
    [
        (State.CONNECTING, set()),
        (State.REGISTERED, {"registered"}),
        (State.UNREACHABLE, {"registered", "decided", "futile"}),
        (State.LISTENING, {"registered", "decided", "listening"}),
        (State.HOPELESS, {"registered", "decided", "futile", "hopeless"}),
    ],
)
def test_what_can_be_waited_for(state: State, names: set[str]) -> None:
    """Each condition is fulfilled in its states, and a wait returns at once whether it is."""
    found = reached(state)
    conditions = {name: getattr(found, name) for name in ("registered", "decided", "listening", "futile", "hopeless")}
    assert names == {name for name, condition in conditions.items() if condition.is_set()}
    assert names == {name for name, condition in conditions.items() if condition.wait(0)}


def test_a_wait_ends_with_the_report() -> None:
    """Another thread reports the state while one waits for it."""
    state = AttachState()
    reporting = threading.Thread(target=state.report, args=(State.LISTENING,))
    reporting.start()
    assert state.listening.wait(3600)
    reporting.join()
