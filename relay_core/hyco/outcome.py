"""What a relay's answer means: HTTP statuses and close codes as typed errors.

The same 404 says "no such hybrid connection" and "nobody listens", and only the reason phrase tells them apart.
The relay's own phrases end in `TrackingId:...`; a listener that refuses writes whatever it likes.
"""

from __future__ import annotations

import re

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

__all__ = ["closed_error", "refused_connect", "refused_listen"]

_LISTENER_LIMIT = re.compile(r"MaximumListenersPerEndpoint|maximum number of listeners|quota", re.IGNORECASE)
_NO_LISTENERS = re.compile(r"no listeners connected|none of the connected listeners meet", re.IGNORECASE)
_TRACKING = re.compile(r"\s*TrackingId:.*", re.IGNORECASE | re.DOTALL)
_UNPRINTABLE = re.compile(r"[^\x20-\x7e\xa0-\uffff]+")


def refused_connect(status: int, reason: str, endpoint: Endpoint) -> RelayDebugError:  # noqa: PLR0911 - one row each
    """Return the error a sender gets for an answer other than 101."""
    said = _said(reason)
    from_relay = "trackingid:" in reason.lower()
    if status in {401, 403} and (from_relay or status == 401):
        return _unauthorized(status, said, endpoint, "Send")
    if status == 404 and _NO_LISTENERS.search(reason):
        return NoListener(
            f"no agent is listening on '{endpoint.path}' (namespace {endpoint.host})",
            hint="start the job with --is-debug true; if it runs, look for 'relay-agent:' lines in its log",
        )
    if status == 404 and (from_relay or said.lower() in {"", "not found"}):
        return _not_found(endpoint)
    if status in {408, 504} and (from_relay or status == 408):
        return Rejected(
            f"the agent on '{endpoint.path}' did not answer within the relay's limit ({status})",
            hint="it may have just ended, or its network is slow; try again",
            status=status,
            reason=said,
        )
    if status in {429, 500, 502, 503} and (from_relay or not said or said[0].isupper()):
        return _unavailable(status, said, endpoint)
    if status == 400 and from_relay:
        return ProtocolError(f"the relay {endpoint.host} did not understand the connect request: {said or status}")
    return Rejected(
        f"the agent on '{endpoint.path}' refused the connection ({status}): {said or 'no reason given'}",
        status=status,
        reason=said,
    )


def refused_listen(status: int, reason: str, endpoint: Endpoint) -> RelayDebugError:
    """Return the error a listener gets for an answer other than 101."""
    said = _said(reason)
    if _LISTENER_LIMIT.search(reason):
        return TooManyListeners(
            f"'{endpoint.path}' already has as many listeners as the relay allows (25 in Azure)",
            hint="end jobs that no longer need debugging, or use another hybrid connection for this job",
        )
    if status in {401, 403}:
        return _unauthorized(status, said, endpoint, "Listen")
    if status == 404:
        return _not_found(endpoint)
    if status in {408, 429} or status >= 500:
        return _unavailable(status, said, endpoint)
    return ProtocolError(f"the relay {endpoint.host} answered a listen request with {status}: {said or 'no reason'}")


def closed_error(code: int, reason: str, endpoint: Endpoint) -> RelayDebugError:
    """Return what a close frame on an established socket means; 1000 is not an error and not for here."""
    said = _said(reason)
    told = f": {said}" if said else ""
    if code == 1008:
        return Unauthorized(
            f"the relay closed '{endpoint.path}' because its token expired or was refused{told}",
            hint="check this machine's clock, and that the key or role still exists",
        )
    what = {
        1001: f"'{endpoint.path}' was deleted, disabled, or its relay is shutting down",
        1006: "the connection to the relay broke without a goodbye",
        1011: "the relay recycled the connection, as it does every 24 hours and after faults",
    }.get(code, f"the relay closed the connection with code {code}")
    return ConnectionLost(f"{what}{told}", code=code, reason=said)


def _unauthorized(status: int, said: str, endpoint: Endpoint, right: str) -> Unauthorized:
    expired = "expired" in said.lower()
    return Unauthorized(
        f"the relay {endpoint.host} refused the credentials for '{endpoint.path}' ({status}): "
        f"{said or 'no reason given'}",
        hint=(
            "the token has expired: make a new one, and check this machine's clock"
            if expired
            else f"use a key with the {right} right on this hybrid connection or namespace, and copy it again whole; "
            f"with Entra ID, the role Azure Relay {right}er, which takes effect up to 5 minutes after it was assigned; "
            "a firewall rule looks the same"
        ),
        status=status,
    )


def _not_found(endpoint: Endpoint) -> HybridConnectionNotFound:
    return HybridConnectionNotFound(
        f"the namespace {endpoint.host} has no hybrid connection '{endpoint.path}'",
        hint="check --hc for a typing error, or create it: az relay hyco create --namespace-name "
        f"{endpoint.host.split('.')[0]} --name {endpoint.path} --resource-group <group>",
    )


def _unavailable(status: int, said: str, endpoint: Endpoint) -> RelayUnreachable:
    return RelayUnreachable(
        f"the relay {endpoint.host} cannot serve now ({status}): {said or 'no reason given'}",
        hint="this passes by itself as a rule; if not, look at the namespace's health in the Azure portal",
    )


def _said(reason: str) -> str:
    """Return a reason phrase without its tracking tail and without control characters."""
    return _UNPRINTABLE.sub(" ", _TRACKING.sub("", reason)).strip().rstrip(".")[:300]
