"""Every answer but 101 that the relay itself gives, in the words of Azure Relay.

Clients tell some of these apart by their text only (`relay_core.hyco.outcome` does), so the wording is part of the
protocol. No text repeats what a peer sent.
"""

from __future__ import annotations

__all__ = [
    "Refusal",
    "accept_timed_out",
    "bad_request",
    "malformed_token",
    "missing_right",
    "missing_token",
    "no_http",
    "no_listeners",
    "no_matching_listeners",
    "not_found",
    "overloaded",
    "shutting_down",
    "too_large",
    "too_many_listeners",
    "unauthorized",
]


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
    """The request makes no sense to the protocol."""
    return Refusal(400, "BadRequest", message)


def unauthorized(code: str, message: str) -> Refusal:
    """The token is not good for this."""
    return Refusal(401, code, message)


def missing_token() -> Refusal:
    """No token where one is needed."""
    return unauthorized("MissingToken", "The request has no security token, and this endpoint needs one")


def malformed_token() -> Refusal:
    """Text in a token's place that is none."""
    return unauthorized("MalformedToken", "The security token is malformed")


def missing_right(right: str) -> Refusal:
    """A genuine token of a rule that does not allow this."""
    return unauthorized("InsufficientRights", f"Unauthorized access. '{right}' claim is required for this operation")


def not_found() -> Refusal:
    """There is no such hybrid connection; said only to holders of a valid token."""
    return Refusal(404, "EndpointNotFound", "Endpoint does not exist")


def no_listeners() -> Refusal:
    """The hybrid connection exists and nobody listens."""
    return Refusal(404, "NoListeners", "There are no listeners connected for the endpoint")


def no_matching_listeners() -> Refusal:
    """Somebody listens, but nobody the sender wants."""
    return Refusal(
        404,
        "NoMatchingListeners",
        "None of the connected listeners meet the AllowedListeners/DisallowedListeners criteria",
    )


def accept_timed_out(status: int) -> Refusal:
    """A listener was told and did not come."""
    return Refusal(
        status, "AcceptTimeout", "None of the connected listeners accepted the connection within the allowed timeout"
    )


def too_many_listeners(limit: int) -> Refusal:
    """One listener more than allowed."""
    return Refusal(
        403, "QuotaExceeded", f"MaximumListenersPerEndpoint: the endpoint has {limit} listeners, which is the limit"
    )


def too_large(limit: int) -> Refusal:
    """A request whose head cannot be passed on."""
    return Refusal(431, "RequestHeaderFieldsTooLarge", f"The request's head is larger than {limit} bytes")


def no_http() -> Refusal:
    """A plain HTTP request."""
    return Refusal(
        501,
        "NotImplemented",
        "This relay serves WebSocket connections under /$hc/ only. HTTP requests are not relayed",
    )


def overloaded() -> Refusal:
    """Too many requests wait for an answer."""
    return Refusal(503, "ServerBusy", "The relay has too many waiting connections. Try again in a moment")


def shutting_down() -> Refusal:
    """The relay is about to end."""
    return Refusal(503, "ShuttingDown", "The relay is shutting down")
