import pytest

from relay_core.errors import (
    HybridConnectionNotFound,
    NoListener,
    ProtocolError,
    Rejected,
    RelayUnreachable,
    TooManyListeners,
    Unauthorized,
)
from relay_core.hyco.address import Endpoint
from relay_core.hyco.outcome import refused_connect, refused_listen
from relay_server.protocol import refusals
from relay_server.protocol.requests import error_phrase

ENDPOINT = Endpoint("relay.test", 443, "hc")


def phrase(refusal):
    return error_phrase(refusal.message, tracking="T_G0", system="sb://relay.test/hc", now=0)


@pytest.mark.parametrize(
    ("refusal", "error"),
    [
        (refusals.bad_request("What"), ProtocolError),
        (refusals.malformed_token(), Unauthorized),
        (refusals.missing_right("Send"), Unauthorized),
        (refusals.missing_token(), Unauthorized),
        (refusals.not_found(), HybridConnectionNotFound),
        (refusals.no_listeners(), NoListener),
        (refusals.no_matching_listeners(), NoListener),
        (refusals.accept_timed_out(408), Rejected),
        (refusals.accept_timed_out(504), Rejected),
        (refusals.overloaded(), RelayUnreachable),
        (refusals.shutting_down(), RelayUnreachable),
        (refusals.internal_error(), RelayUnreachable),
    ],
)
def test_a_sender_understands_every_refusal(refusal, error):
    """Our own sender turns each answer into the error that it is meant to be."""
    assert type(refused_connect(refusal.status, phrase(refusal), ENDPOINT)) is error


@pytest.mark.parametrize(
    ("refusal", "error"),
    [
        (refusals.too_many_listeners(25), TooManyListeners),
        (refusals.missing_token(), Unauthorized),
        (refusals.not_found(), HybridConnectionNotFound),
        (refusals.shutting_down(), RelayUnreachable),
        (refusals.bad_request("What"), ProtocolError),
    ],
)
def test_a_listener_understands_every_refusal(refusal, error):
    """Our own listener turns each answer into the error that it is meant to be."""
    assert type(refused_listen(refusal.status, phrase(refusal), ENDPOINT)) is error


def test_an_expired_token_is_reported_as_such():
    """The word that makes the client's hint mention the clock is in the text."""
    expired = refusals.unauthorized("ExpiredToken", "The token is expired")
    assert "clock" in refused_connect(401, phrase(expired), ENDPOINT).hint
