"""HTTP statuses and WebSocket close codes of the relay as typed errors.

The relay answers 404 both for an unknown hybrid connection and for one without listeners; only the reason phrase
differs. A reason phrase of the relay ends with `TrackingId:...`. A listener that rejects a sender can choose any status
and text.
"""

from __future__ import annotations

import re

from relay_core import errors
from relay_core.hyco.address import Endpoint

MIN_REFUSAL = 400
"""Neither the relay nor an agent refuses with a lower HTTP status; a login page has one."""
_LISTENER_LIMIT = re.compile(r"MaximumListenersPerEndpoint|maximum number of listeners|quota", re.IGNORECASE)
_NO_LISTENERS = re.compile(r"no listeners connected|none of the connected listeners meet", re.IGNORECASE)
_TRACKING = re.compile(r"\s*TrackingId:.*", re.IGNORECASE | re.DOTALL)
_UNPRINTABLE = re.compile(r"[^\x20-\x7e\xa0-\uffff]+")


def refused_connect(status: int, reason: str, endpoint: Endpoint) -> errors.RelayDebugError:  # noqa: PLR0911 - one row each
    """Return the error for a sender whose handshake was answered with a status other than 101."""
    text = _clean(reason)
    from_relay = "trackingid:" in reason.lower()
    # A listener may answer 403 on its own; the key or token has then been accepted.
    if status in {401, 403} and (from_relay or status == 401):
        return _unauthorized(status, text, endpoint, "Send")
    if status == 404 and _NO_LISTENERS.search(reason):
        return errors.NoListener(
            f"no agent is listening on '{endpoint.name}' (namespace {endpoint.host})",
            hint="start the job with --is-debug true or relay-agent run; if it is running, look for 'relay-agent:' "
            "lines in its log",
            reason_to_wait="no agent is listening yet",
        )
    # Proxies and other implementations of the relay send the plain status, without a tracking id.
    if status == 404 and (from_relay or text.lower() in {"", "not found"}):
        return _not_found(endpoint)
    if status in {408, 504} and (from_relay or status == 408):
        return errors.Rejected(
            f"the agent on '{endpoint.name}' did not answer within the relay's time limit (HTTP status {status})",
            hint="retry: the job may have just ended, or its network may be slow",
            status=status,
            reason=text,
        )
    # Standard reason phrases and Azure's sentences start with a capital letter; the texts of relay-agent do not.
    if status in {429, 500, 502, 503} and (from_relay or not text or text[0].isupper()):
        return _unavailable(status, text, endpoint)
    if status == 400 and from_relay:
        return errors.ProtocolError(
            f"the relay {endpoint.host} rejected the connect request as malformed: {text or status}"
        )
    return errors.Rejected(
        f"the agent on '{endpoint.name}' refused the connection ({status}): {text or 'no reason given'}",
        status=status,
        reason=text,
        elsewhere=status < MIN_REFUSAL,
    )


def refused_listen(status: int, reason: str, endpoint: Endpoint) -> errors.RelayDebugError:
    """Return the error for a listener whose handshake was answered with a status other than 101."""
    text = _clean(reason)
    # Checked before the status, because the status that the service sends for its limit is not documented.
    if _LISTENER_LIMIT.search(reason):
        return errors.TooManyListeners(
            f"'{endpoint.name}' already has as many listeners as the relay allows (25 in Azure)",
            hint="stop jobs that no longer need debugging, or use another hybrid connection for this job",
        )
    if status in {401, 403}:
        return _unauthorized(status, text, endpoint, "Listen")
    if status == 404:
        return _not_found(endpoint)
    if status in {408, 429} or status >= 500:
        return _unavailable(status, text, endpoint)
    return errors.ProtocolError(
        f"the relay {endpoint.host} answered the listen request with status {status}: {text or 'no reason given'}",
        elsewhere=status < MIN_REFUSAL,
    )


def closed_error(code: int, reason: str, endpoint: Endpoint, *, closed_here: bool = False) -> errors.RelayDebugError:
    """Return the error for a close code (RFC 6455, 7.4) on an established connection; not for 1000, a normal end.

    Args:
        code: The close code.
        reason: The text of the Close frame.
        endpoint: The hybrid connection.
        closed_here: Whether this side has closed the connection; see `ConnectionLost`.
    """
    text = _clean(reason)
    suffix = f": {text}" if text else ""
    if closed_here:
        what = "the relay did not answer in time" if code == 1011 else "the relay violated the protocol or a limit"
        return errors.ConnectionLost(f"{what}{suffix}", code=code, reason=text, closed_here=True)
    # The only code that concerns the credential; all others are reported as a lost connection, which is retried.
    if code == 1008:
        return errors.Unauthorized(
            f"the relay closed the connection to '{endpoint.name}' because the token expired or was refused{suffix}",
            hint="check this machine's clock, and check whether the key or role still exists",
        )
    what = {
        1001: f"'{endpoint.name}' was deleted or disabled, or its relay is shutting down",
        1006: "the connection to the relay closed unexpectedly",  # no Close frame was received
        1011: "the relay recycled the connection, as it does every 24 hours and after faults",
    }.get(code, f"the relay closed the connection with code {code}")
    return errors.ConnectionLost(f"{what}{suffix}", code=code, reason=text)


def _unauthorized(status: int, text: str, endpoint: Endpoint, right: str) -> errors.Unauthorized:
    expired = "expired" in text.lower()
    return errors.Unauthorized(
        f"the relay {endpoint.host} refused the credentials for '{endpoint.name}' ({status}): "
        f"{text or 'no reason given'}",
        hint=(
            "the token has expired: create a new one, and check this machine's clock"
            if expired
            else f"use a key with the {right} right on this hybrid connection or namespace, and copy the whole key; "
            f"with Entra ID, assign the role Azure Relay {right}er, which takes up to 5 minutes to take effect; a "
            "firewall rule can cause the same error"
        ),
        status=status,
    )


def _not_found(endpoint: Endpoint) -> errors.HybridConnectionNotFound:
    return errors.HybridConnectionNotFound(
        f"the namespace {endpoint.host} has no hybrid connection '{endpoint.name}'",
        hint="check the spelling of --hc, or create it: az relay hyco create --namespace-name "
        f"{endpoint.host.split('.')[0]} --name {endpoint.name} --resource-group <group>",
    )


def _unavailable(status: int, text: str, endpoint: Endpoint) -> errors.RelayUnreachable:
    return errors.RelayUnreachable(
        f"the relay {endpoint.host} is temporarily unavailable ({status}): {text or 'no reason given'}",
        hint="if this persists, check the namespace's health in the Azure portal",
        costly=True,
    )


def _clean(reason: str) -> str:
    """Return a reason phrase without its tracking suffix and control characters, for logs and error messages."""
    return _UNPRINTABLE.sub(" ", _TRACKING.sub("", reason)).strip().rstrip(".")[:300]
