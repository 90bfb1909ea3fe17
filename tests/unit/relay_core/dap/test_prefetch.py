"""Facts about the requests that can be prefetched at a stop."""

import json

import pytest

from relay_core.dap.prefetch import RequestTemplate, StopIds, is_read_only, is_watch

FRAMES = {"stackFrames": [{"id": 7}, {"id": 8}]}
SCOPES = {"scopes": [{"name": "Locals", "variablesReference": 21}, {"name": "Globals", "variablesReference": 22}]}


@pytest.fixture
def stop() -> StopIds:
    """A stop of thread 1 with all its ids."""
    stop = StopIds(1)
    stop.learn("stackTrace", {"threadId": 1, "startFrame": 0}, FRAMES)
    stop.learn("scopes", {"frameId": 7}, SCOPES)
    return stop


TEMPLATES = [
    ("threads", {}, RequestTemplate("threads")),
    ("stackTrace", {"threadId": 1, "levels": 1}, RequestTemplate("stackTrace", 0, {"levels": 1})),
    ("scopes", {"frameId": 7}, RequestTemplate("scopes")),
    ("variables", {"variablesReference": 22, "count": 5}, RequestTemplate("variables", 1, {"count": 5})),
]


@pytest.mark.parametrize(("command", "arguments", "template"), TEMPLATES)
def test_template_and_request(stop, command, arguments, template):
    """A request has a template for any stop, and the template gives the request back."""
    assert stop.template_for(command, arguments) == template
    assert stop.arguments(template) == arguments
    assert RequestTemplate.parse(json.loads(json.dumps(template.as_json()))) == template


@pytest.mark.parametrize(
    ("command", "arguments"),
    [
        ("stackTrace", {"threadId": 2}),
        ("scopes", {"frameId": 8}),
        ("scopes", {}),
        ("variables", {"variablesReference": 99}),
        ("evaluate", {"expression": "x"}),
        ("source", {}),
    ],
)
def test_other_requests(stop, command, arguments):
    """A request about another thread, frame or object, or one that changes something, has no template."""
    assert stop.template_for(command, arguments) is None


def test_no_ids_are_known_at_first():
    """Before the first response, only requests about the thread are possible."""
    stop = StopIds(1)
    assert [True, True, False, False] == [stop.arguments(template) is not None for _, _, template in TEMPLATES]


@pytest.mark.parametrize(
    ("command", "arguments", "body"),
    [
        ("stackTrace", {"threadId": 2}, {"stackFrames": [{"id": 9}]}),
        ("stackTrace", {"threadId": 1, "startFrame": 1}, {"stackFrames": [{"id": 9}]}),
        ("stackTrace", {"threadId": 1}, {"stackFrames": []}),
        ("stackTrace", {"threadId": 1}, {"stackFrames": [None]}),
        ("stackTrace", {"threadId": 1}, None),
        ("scopes", {"frameId": 8}, {"scopes": [{"variablesReference": 1}]}),
        ("scopes", {"frameId": 8}, {"scopes": 3}),
    ],
)
def test_responses_about_something_else(stop, command, arguments, body):
    """Responses about other threads and frames, and malformed ones, change nothing."""
    before = dict(vars(stop))
    stop.learn(command, arguments, body)
    assert vars(stop) == before


@pytest.mark.parametrize(
    "found",
    [None, [], {}, {"command": "threads"}, {"command": "evaluate", "scope": 0, "rest": {}}]
    + [{"command": "variables", "scope": scope, "rest": {}} for scope in (-1, "0", None)],
)
def test_invalid_templates(found):
    """Anything but a template reads as None."""
    assert RequestTemplate.parse(found) is None


@pytest.mark.parametrize(
    ("command", "arguments", "changes"),
    [
        ("threads", None, False),
        ("variables", {"variablesReference": 3}, False),
        ("evaluate", {"context": "watch"}, True),
        ("evaluate", {"context": "hover"}, True),
        ("evaluate", {"context": "repl"}, True),
        ("evaluate", None, True),
        ("next", {"threadId": 1}, True),
        ("setVariable", {}, True),
    ],
)
def test_what_may_change_something(command, arguments, changes):
    """All requests may, except prefetchable ones; every expression may have side effects."""
    assert is_read_only({"command": command, "arguments": arguments}) is not changes


def test_an_unreadable_message_may_change_something():
    """A message without a command is not read-only."""
    assert not is_read_only({})


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        ({"command": "evaluate", "arguments": {"context": "watch"}}, True),
        ({"command": "evaluate", "arguments": {"context": "hover"}}, False),
        ({"command": "evaluate", "arguments": None}, False),
        ({"command": "variables", "arguments": {"context": "watch"}}, False),
        ({}, False),
    ],
)
def test_watch_expressions(request_, expected):
    """Only the context distinguishes them from other expressions."""
    assert expected is is_watch(request_)
