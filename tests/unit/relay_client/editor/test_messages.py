"""Facts about the messages that relay-client sends to editors."""

from relay_client.editor.messages import make_failure, make_output, make_success

REQUEST = {"seq": 7, "type": "request", "command": "initialize"}


def test_output_names_the_program() -> None:
    """A line of relay-client cannot be taken for one of the job."""
    event = make_output("waiting", "console", 3)
    assert ("output", 3) == (event["event"], event["seq"])
    assert {"category": "console", "output": "relay-client: waiting\n"} == event["body"]


def test_a_failure_is_shown_to_the_user() -> None:
    """The reason is in both fields that editors read, and never taken for a template with variables."""
    failure = make_failure(REQUEST, "no {job}", 3)
    assert (False, "no {job}", 7) == (failure["success"], failure["message"], failure["request_seq"])
    assert {"id": 1, "format": "no (job)", "showUser": True} == failure["body"]["error"]


def test_a_success_answers_the_request() -> None:
    """A response has the number and the command of its request."""
    success = make_success(REQUEST, 3)
    assert (True, "initialize", 7) == (success["success"], success["command"], success["request_seq"])
