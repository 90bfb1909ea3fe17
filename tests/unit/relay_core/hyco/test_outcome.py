"""Facts about what a relay's answers mean."""

from collections.abc import Callable

import pytest

from relay_core.errors import (
    ConnectionLost,
    HybridConnectionNotFound,
    NoListener,
    ProtocolError,
    Rejected,
    RelayDebugError,
    RelayUnreachable,
    TooManyListeners,
    Unauthorized,
)
from relay_core.hyco.address import Endpoint
from relay_core.hyco.outcome import closed_error, refused_connect, refused_listen

ENDPOINT = Endpoint("contoso.servicebus.windows.net", 443, "myhc")
TAIL = ". TrackingId:7b17_G13, SystemTracker:sb://contoso/myhc, Timestamp:2025-04-24T11:08:15"


@pytest.mark.parametrize(
    ("status", "reason", "error"),
    [
        (401, "InvalidSignature: The token has an invalid signature" + TAIL, Unauthorized),
        (401, "", Unauthorized),
        (403, "Forbidden" + TAIL, Unauthorized),
        (404, "Endpoint does not exist" + TAIL, HybridConnectionNotFound),
        (404, "Not Found", HybridConnectionNotFound),
        (404, "There are no listeners connected for the endpoint" + TAIL, NoListener),  # language: keep - Azure's text
        (
            404,
            "None of the connected listeners meet the AllowedListeners/DisallowedListeners criteria" + TAIL,
            NoListener,
        ),
        (404, "no such rank", Rejected),
        (403, "held by somebody else", Rejected),
        (408, "None of the connected listeners accepted the connection within the allowed timeout" + TAIL, Rejected),
        (504, "The listener did not respond" + TAIL, Rejected),
        (421, "this agent does not own port 5679", Rejected),
        (418, "", Rejected),
        (400, "Bad action" + TAIL, ProtocolError),
        (400, "Rejected by user code", Rejected),
        (500, "InternalServerError" + TAIL, RelayUnreachable),
        (503, "Busy" + TAIL, RelayUnreachable),
        (429, "", RelayUnreachable),
    ],
)
def test_refused_connect(status: int, reason: str, error: type[RelayDebugError]) -> None:
    """A sender's refusal has the type of its row in the status table."""
    assert error is type(refused_connect(status, reason, ENDPOINT))


@pytest.mark.parametrize(
    ("status", "reason", "prompt"),
    [
        (404, "There are no listeners connected for the endpoint" + TAIL, True),  # language: keep - Azure's text
        (429, "Too Many Requests" + TAIL, False),
        (503, "Busy" + TAIL, False),
        (401, "ExpiredToken" + TAIL, False),
        (418, "", False),
        (200, "OK", True),
        (302, "Found", True),
    ],
)
def test_a_busy_relay_is_not_retried_promptly(status: int, reason: str, prompt: bool) -> None:
    """Attempts within a second are for a listener that is not there yet, and for what answers in the relay's place."""
    assert prompt is refused_connect(status, reason, ENDPOINT).allows_prompt_retry


@pytest.mark.parametrize(
    ("status", "reason", "error"),
    [
        (401, "ExpiredToken: The token is expired" + TAIL, Unauthorized),
        (403, "", Unauthorized),
        (404, "Endpoint does not exist" + TAIL, HybridConnectionNotFound),
        (403, "MaximumListenersPerEndpoint: quota exceeded" + TAIL, TooManyListeners),
        (500, "", RelayUnreachable),
        (429, "", RelayUnreachable),
        (302, "Found", ProtocolError),
    ],
)
def test_refused_listen(status: int, reason: str, error: type[RelayDebugError]) -> None:
    """A listener's refusal has the type of its row in the status table."""
    assert error is type(refused_listen(status, reason, ENDPOINT))


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (1001, ConnectionLost),
        (1006, ConnectionLost),
        (1008, Unauthorized),
        (1011, ConnectionLost),
        (4000, ConnectionLost),
    ],
)
def test_closed_error(code: int, error: type[RelayDebugError]) -> None:
    """A close code other than 1000 is an error that names its meaning."""
    closed = closed_error(code, "text", ENDPOINT)
    assert error is type(closed)
    assert closed.sentence.endswith(": text")


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        (1002, "the relay violated the protocol or a limit: text"),
        (1009, "the relay violated the protocol or a limit: text"),
        (1011, "the relay did not answer in time: text"),
    ],
)
def test_closed_here(code: int, sentence: str) -> None:
    """If this side has closed the connection, the error names the relay's fault and is retryable."""
    closed = closed_error(code, "text", ENDPOINT, closed_here=True)
    assert (ConnectionLost, sentence, True) == (type(closed), closed.sentence, closed.retryable)


def test_expired_tokens_are_explained() -> None:
    """An expired token's hint speaks of the clock."""
    assert "clock" in refused_connect(401, "ExpiredToken: expired" + TAIL, ENDPOINT).hint


def test_tracking_tail_is_not_shown() -> None:
    """Users do not see the relay's tracking data."""
    assert "TrackingId" not in str(refused_connect(401, "Bad" + TAIL, ENDPOINT))


def test_control_characters_are_not_shown() -> None:
    """A reason phrase cannot write to the user's terminal."""
    assert "\x1b" not in str(refused_connect(421, "\x1b[2Jhello\r\n", ENDPOINT))


@pytest.mark.parametrize("refused", [refused_connect, refused_listen])
@pytest.mark.parametrize("status", [401, 404])
def test_errors_name_the_family(refused: Callable[[int, str, Endpoint], RelayDebugError], status: int) -> None:
    """Users know the name of the family, and not that of one of its hybrid connections."""
    sibling = Endpoint("contoso.servicebus.windows.net", 443, "alice", 2).siblings[1]
    error = str(refused(status, "" + TAIL, sibling))
    assert "'alice'" in error
    assert "alice-1" not in error
