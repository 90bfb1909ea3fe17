"""Tracking ids, which consist of a GUID and the gateways that a request has passed, and the suffix of error texts.

7b17ae72-fddb-4c9b-a8f9-94c2654aa0fe_G0
Endpoint does not exist. TrackingId:7b17..._G0, SystemTracker:sb://ns/hc, Timestamp:2025-04-24T11:08:15
"""

from __future__ import annotations

import re
import time
import uuid

__all__ = ["error_phrase", "guid_of", "new_guid", "tracking_id"]

_ID = re.compile(r"([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})(?:_G\d{1,6}){0,8}", re.IGNORECASE)


def new_guid() -> str:
    """Return a random GUID."""
    return str(uuid.uuid4())


def guid_of(text: str | None) -> str | None:
    """Return the GUID of a tracking id, or None if the text is not one."""
    # The case is preserved, because clients compare the id with the one that they sent.
    match = _ID.fullmatch(text or "")
    return match.group(1) if match else None


def tracking_id(given: str | None) -> str:
    """Return the tracking id of a request: the client's id, or a new one if that is not a GUID, plus this gateway."""
    return f"{given if guid_of(given) else new_guid()}_G0"


def error_phrase(message: str, *, tracking: str, system: str, now: float) -> str:
    """Return the reason phrase of an error response of the relay itself.

    Args:
        message: One sentence without a full stop.
        tracking: The request's tracking id.
        system: The requested resource, e.g. `sb://localhost/myhc`.
        now: Unix seconds.
    """
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now))
    return f"{message}. TrackingId:{tracking}, SystemTracker:{system}, Timestamp:{stamp}"
