"""Facts about how an editor attaches; the whole layer is tested in test_session.py."""

from dataclasses import replace
from typing import Any

import pytest

from relay_client.editor.attaching import Attaching, OnSource
from relay_client.editor.messages import CANNOT_FOLLOW, NOT_FOLLOWED, JobView
from relay_client.editor.notices import Outbox

JOB = JobView(5678, "myhc", host="node", cwd="/mnt/job", script="train.py")
CAPABLE = {"supportsStartDebuggingRequest": True}


def attaching(on_source: OnSource = lambda _local, _remote: None) -> Attaching:
    return Attaching(Outbox(), lambda _folder, _script: "", on_source)


def attached(arguments: dict[str, Any], initialize: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments that the debugger receives."""
    request = {"seq": 2, "type": "request", "command": "attach", "arguments": arguments}
    return attaching().requested(request, initialize, JOB)["arguments"]


def test_children_are_followed_by_editors_that_can() -> None:
    """An editor that opens sessions for children, and does not mention them, follows them."""
    assert {"subProcess": True} == attached({}, CAPABLE)


@pytest.mark.parametrize("value", [True, False])
def test_the_editors_own_choice_counts(value: bool) -> None:
    """`subProcess` passes unchanged."""
    assert {"subProcess": value} == attached({"subProcess": value}, CAPABLE)


@pytest.mark.parametrize("initialize", [{}, {"supportsStartDebuggingRequest": False}])
def test_other_editors_are_not_offered_children(initialize: dict[str, Any]) -> None:
    """A child would wait in vain for an editor that ignores it."""
    assert {} == attached({}, initialize)


@pytest.mark.parametrize(
    ("arguments", "initialize", "expected"),
    [
        ({"subProcess": True}, {}, ["relay-client: " + CANNOT_FOLLOW + "\n"]),
        ({}, {}, ["relay-client: " + NOT_FOLLOWED + "\n"]),
        ({"subProcess": True}, CAPABLE, []),
        ({}, CAPABLE, []),
        ({"subProcess": False}, {}, []),
        ({"subProcess": True, "subProcessId": 7}, {}, []),
    ],
)
def test_an_editor_that_cannot_follow_children_is_shown_so(arguments, initialize, expected) -> None:
    """A line describes how children are handled; it is absent if they are followed or disabled, or for a child."""
    outbox = Outbox()
    request = {"seq": 2, "type": "request", "command": "attach", "arguments": arguments}
    Attaching(outbox, lambda _folder, _script: "", lambda _local, _remote: None).requested(request, initialize, JOB)
    assert expected == [message.event()["body"]["output"] for message in outbox.take()]


@pytest.mark.parametrize(
    ("arguments", "success", "expected"),
    [({}, True, ["relay-client: rank 0 was stopped\n"]), ({"subProcessId": 7}, True, []), ({}, False, [])],
)
def test_the_stop_of_a_replaced_debugger_is_shown(arguments, success, expected) -> None:
    """It is shown once the new debugger has attached to the target, and not to one of its children."""
    outbox, view = Outbox(), replace(JOB, replaced="rank 0 was stopped")
    attach = Attaching(outbox, lambda _folder, _script: "", lambda _local, _remote: None)
    request = {"seq": 2, "type": "request", "command": "attach", "arguments": {"subProcess": False, **arguments}}
    attach.requested(request, {}, view)
    response = {"seq": 1, "type": "response", "command": "attach", "request_seq": 2, "success": success}
    assert not attach.responded(response, view)
    assert expected == [message.event()["body"]["output"] for message in outbox.take()]


def test_each_source_is_reported_once() -> None:
    """Files with breakpoints are reported with the file on the node that they are mapped to."""
    found: list[tuple[str, str]] = []
    attach = attaching(lambda local, remote: found.append((local, remote)))
    mappings = [{"localRoot": "/home/me", "remoteRoot": "."}]
    attach.requested(
        {"seq": 2, "type": "request", "command": "attach", "arguments": {"pathMappings": mappings}}, {}, JOB
    )
    for path, lines in (("/home/me/a.py", []), ("/home/me/a.py", [1]), ("/home/me/a.py", [2]), ("/other/b.py", [1])):
        arguments = {"source": {"path": path}, "breakpoints": lines}
        request = {"seq": 3, "type": "request", "command": "setBreakpoints", "arguments": arguments}
        attach.breakpoints_requested(request, JOB)
    assert [("/home/me/a.py", "a.py")] == found


def test_the_attach_of_a_child_process() -> None:
    """It is recognized by the id that debugpy has announced."""
    attach = attaching()
    assert not attach.is_child
    request = {"seq": 2, "type": "request", "command": "attach", "arguments": {"subProcessId": 17}}
    attach.requested(request, {}, JOB)
    assert attach.is_child


@pytest.mark.parametrize(
    "response",
    [
        {"request_seq": 2, "command": "attach", "success": False, "message": None},
        {"request_seq": 3, "command": "setBreakpoints", "success": True, "body": [1]},
        {"request_seq": 3, "command": "setBreakpoints", "success": True, "body": {"breakpoints": [1]}},
    ],
)
def test_a_response_of_another_shape(response: dict[str, Any]) -> None:
    """It passes unchanged, whatever the debugger has put into it."""
    attach = attaching()
    attach.requested({"seq": 2, "type": "request", "command": "attach", "arguments": {}}, {}, JOB)
    breakpoints = {"source": {"path": "/job/train.py"}, "breakpoints": [{"line": 1}]}
    attach.breakpoints_requested(
        {"seq": 3, "type": "request", "command": "setBreakpoints", "arguments": breakpoints}, JOB
    )
    assert not attach.responded({"seq": 9, "type": "response", **response}, JOB)  # type: ignore[typeddict-item]
