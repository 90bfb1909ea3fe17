"""What a process and the node's agent say to each other: one JSON object per line, over a stream socket.

    process -> agent                                     agent -> process
    {"register": {...}, "access": {...}, ...}  first     {"registered": PORT, "agent": PID}
    {"state": "waiting", "detail": "", "until": SECONDS} {"refused": SENTENCE, "hint": ...}      the socket then ends
    {"answer": ID, ...}                                  {"ask": "arm" | "release" | ..., "id": ID, ...}
    {"leave": true}                         last         {"listening": true}
                                                         {"failed": SENTENCE, "hint": ...}       the agent then ends
                                                         {"notice": TEXT}
                                                         {"done": true}                          after a "leave"

The socket lies where only this user can reach it, so connection strings may pass. Unknown fields are skipped: agent and
process may be of different versions when a job's environment is replaced under a running agent.
"""

from __future__ import annotations

import json
from typing import Any

__all__ = ["MAX_LINE", "Message", "decode", "encode"]

Message = dict[str, Any]

MAX_LINE = 4 * 1024 * 1024
"""Bytes; the stacks of a process with a thousand threads fit."""


def encode(message: Message) -> bytes:
    """Return a message as a line."""
    return json.dumps(message, separators=(",", ":"), default=str).encode() + b"\n"


def decode(line: bytes) -> Message:
    """Read a line; anything but a JSON object becomes an empty message, which is ignored."""
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return message if isinstance(message, dict) else {}
