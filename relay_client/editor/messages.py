"""DAP messages that relay-client itself sends to an editor.

https://microsoft.github.io/debug-adapter-protocol/specification
"""

from __future__ import annotations

from collections.abc import Mapping

from relay_core.dap.messages import Body, Event, Request, Response

__all__ = ["CONSOLE", "IMPORTANT", "PREFIX", "make_event", "make_failure", "make_output", "make_success"]

CONSOLE = "console"
"""Category of output that an editor shows in its debug console."""
IMPORTANT = "important"
"""Category of output that requires action by the user; VS Code also shows it as a notification."""
PREFIX = "relay-client: "
"""A prefix that distinguishes relay-client's lines from the output of the job."""


def make_event(name: str, body: Mapping[str, object], seq: int) -> Event:
    """Return an event."""
    return {"seq": seq, "type": "event", "event": name, "body": dict(body)}


def make_output(text: str, category: str, seq: int) -> Event:
    """Return the event that shows one line of text."""
    return make_event("output", {"category": category, "output": f"{PREFIX}{text}\n"}, seq)


def make_success(request: Request, seq: int, body: Mapping[str, object] | None = None) -> Response:
    """Return the response to a request that has succeeded."""
    response = _response(request, seq, success=True)
    return response if body is None else {**response, "body": dict(body)}


def make_failure(request: Request, reason: str, seq: int) -> Response:
    """Return the response to a request that has failed; the editor shows the reason."""
    # `message` is for programs that ignore `body.error`. In `format`, editors replace names in braces.
    error: Body = {"id": 1, "format": reason.replace("{", "(").replace("}", ")"), "showUser": True}
    return {**_response(request, seq, success=False), "message": reason, "body": {"error": error}}


def _response(request: Request, seq: int, *, success: bool) -> Response:
    return {
        "seq": seq,
        "type": "response",
        "request_seq": request["seq"],
        "command": request["command"],
        "success": success,
    }
