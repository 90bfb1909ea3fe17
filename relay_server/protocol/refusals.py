"""Error responses of the relay itself, with the texts of Azure Relay.

Clients, such as `relay_core.hyco.outcome`, distinguish some of them only by their text, so the wording is part of the
protocol. Texts never contain data from a peer.
"""

from __future__ import annotations


class Refusal(Exception):
    """A request that is answered with an error.

    Args:
        status: HTTP status.
        code: Short name for programs, in the JSON body.
        message: One sentence without a full stop.
    """

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message


def bad_request(message: str) -> Refusal:
    """The request is invalid."""
    return Refusal(400, "BadRequest", message)


def unauthorized(code: str, message: str) -> Refusal:
    """The token is invalid or does not grant access."""
    return Refusal(401, code, message)


def missing_token() -> Refusal:
    """A token is required."""
    return unauthorized("MissingToken", "The request has no security token, and this endpoint needs one")


def malformed_token() -> Refusal:
    """The text is not a token."""
    return unauthorized("MalformedToken", "The security token is malformed")


def missing_right(right: str) -> Refusal:
    """The token is valid, but its rule does not grant the required right."""
    return unauthorized("InsufficientRights", f"Unauthorized access. '{right}' claim is required for this operation")


def not_found() -> Refusal:
    """The hybrid connection does not exist; sent only to clients with a valid token."""
    return Refusal(404, "EndpointNotFound", "Endpoint does not exist")


def no_listeners() -> Refusal:
    """The hybrid connection has no listeners."""
    message = "There are no listeners connected for the endpoint"  # language: keep - Azure's text
    return Refusal(404, "NoListeners", message)


def no_matching_listeners() -> Refusal:
    """There are listeners, but none that the sender's selection headers allow."""
    return Refusal(
        404,
        "NoMatchingListeners",
        "None of the connected listeners meet the AllowedListeners/DisallowedListeners criteria",
    )


def accept_timed_out(status: int) -> Refusal:
    """A listener received the offer, but neither accepted nor rejected it in time."""
    return Refusal(
        status, "AcceptTimeout", "None of the connected listeners accepted the connection within the allowed timeout"
    )


def too_many_listeners(limit: int) -> Refusal:
    """The hybrid connection has reached its limit on listeners."""
    return Refusal(
        403, "QuotaExceeded", f"MaximumListenersPerEndpoint: the endpoint has {limit} listeners, which is the limit"
    )


def too_large(limit: int) -> Refusal:
    """The request head exceeds the limit."""
    return Refusal(431, "RequestHeaderFieldsTooLarge", f"The request head is larger than {limit} bytes")


def internal_error() -> Refusal:
    """A defect of the relay."""
    return Refusal(500, "InternalServerError", "The relay failed to process the request")


def response_timed_out() -> Refusal:
    """A listener received the HTTP request, but did not respond in time."""
    return Refusal(
        504,
        "ListenerTimeout",
        "The request was routed to the listener but the listener did not respond in the required time",
    )


def bad_response() -> Refusal:
    """A listener's response cannot be forwarded, or the listener disconnected before the response was complete."""
    return Refusal(502, "BadGateway", "The listener did not send a valid response")


def body_timed_out() -> Refusal:
    """The sender stopped sending the body of its HTTP request."""
    return Refusal(408, "RequestTimeout", "The request body did not arrive within the allowed time")


def overloaded() -> Refusal:
    """Too many requests are waiting for a response."""
    return Refusal(503, "ServerBusy", "The relay has too many waiting connections. Try again in a moment")


def shutting_down() -> Refusal:
    """The relay is shutting down."""
    return Refusal(503, "ShuttingDown", "The relay is shutting down")
