"""How pydevd sends its messages to debugpy's adapter: without delay, and none that is too large.

pydevd leaves Nagle's algorithm on and writes each message in two parts, which costs 40 ms an answer.

At 16 MiB debugpy's adapter stops reading for ever: the debug session hangs without a word to anybody. An answer of
that size, such as "copy value" of a long string, becomes a refusal that the editor shows; text that the job prints is
cut.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from typing import Any

from relay_core.dap.prefetch import NEWS

__all__ = ["MAX_BODY", "install", "shortened"]

MAX_BODY = 0xFFFFFF
"""Bytes of JSON; `JsonIOStream.MAX_BODY_SIZE` in `debugpy.common.messaging`."""
KEPT_OUTPUT = 2_000_000
"""Characters of printed text that are kept: each may need six bytes of JSON."""


def install() -> None:
    """Have this process's pydevd send so, and that of its forked children."""
    import socket  # noqa: PLC0415 - the slowest import here, and needed in debug runs only

    try:
        from _pydevd_bundle.pydevd_net_command import NetCommand  # noqa: PLC0415 - in debug runs only

        send = NetCommand.send
    except (ImportError, AttributeError):  # pydevd's inside may change; then it sends as ever
        return

    def send_well(command: Any, connection: Any) -> None:
        """Send, in pydevd's own thread: in the job's threads a developer could step into this."""
        with contextlib.suppress(AttributeError, OSError):  # it has ended, or is none; the delay is bearable
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        size = len(getattr(command, "_as_bytes", b""))
        if size > MAX_BODY and isinstance(command.as_dict, dict):
            command = NetCommand(command.id, command.seq, shortened(command.as_dict, size), is_json=True)
        send(command, connection)

    NetCommand.send = send_well


def shortened(message: Mapping[str, Any], size: int) -> dict[str, Any]:
    """Return what is said instead of a message of `size` bytes."""
    if message.get("event") == NEWS:  # one long answer makes it so long
        longest = max(message["body"]["answered"], key=lambda response: len(json.dumps(response)))
        answered = [shortened(r, size) if r is longest else r for r in message["body"]["answered"]]
        return {**message, "body": {**message["body"], "answered": answered}}
    why = f"{size:,} bytes, and debugpy carries less than 16 MiB in one message"
    if message.get("type") == "response":
        answers = {name: message.get(name) for name in ("type", "request_seq", "command")}
        return {**answers, "success": False, "message": f"the answer has {why}; ask for a part of it"}
    body = message.get("body") or {}
    text = f"{body.get('output', '')[:KEPT_OUTPUT]}\n[cut by relay-agent: this had {why}]\n"
    return {"type": "event", "event": "output", "body": {"category": body.get("category", "console"), "output": text}}
