"""Patches for how pydevd sends messages to debugpy's adapter, and for requests that it does not support."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

from relay_agent.debuggee.pydevd_patches.snapshots import values_of
from relay_agent.debugpy_internals.table import SENDING, UNSUPPORTED
from relay_agent.job.gevent_originals import json, socket
from relay_core.dap.messages import FIRST_SNAPSHOT

# Patch that changes how pydevd sends messages to debugpy's adapter: it sets TCP_NODELAY and limits message sizes.
#
# pydevd leaves Nagle's algorithm on and writes each message in two parts, which costs 40 ms per response.
#
# After a message of 16 MiB or more, debugpy's adapter stops reading, and the debug session hangs silently. A response
# of that size, for example to "Copy Value" for a long string, is replaced by an error that the editor shows. Printed
# output is truncated.

MAX_BODY = 0xFFFFFF
"""Maximum size of the JSON in bytes; `JsonIOStream.MAX_BODY_SIZE` in `debugpy.common.messaging`."""
KEPT_OUTPUT = 2_000_000
"""Number of characters of printed output that are kept; each may take six bytes in JSON."""


def install() -> None:
    """Patch `NetCommand.send` in this process and its forked children."""
    from _pydevd_bundle.pydevd_net_command import NetCommand  # noqa: PLC0415 - in debug runs only

    send = NetCommand.send

    def send_limited(command: Any, connection: Any, *arguments: Any) -> None:
        """Send the message.

        Called only in pydevd's thread, because in the job's threads a developer could step into it.
        """
        if not SENDING.is_off:
            with SENDING.guarded():
                # It may be closed, or not be a socket; without the option, only the delay remains.
                with contextlib.suppress(AttributeError, OSError):
                    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                size = len(command._as_bytes)  # noqa: SLF001 - the bytes that pydevd would send
                if size > MAX_BODY and isinstance(command.as_dict, dict):
                    command = NetCommand(command.id, command.seq, shortened(command.as_dict, size), is_json=True)
        send(command, connection, *arguments)

    NetCommand.send = send_limited


def shortened(message: Mapping[str, Any], size: int) -> dict[str, Any]:
    """Return a replacement for a message of `size` bytes, which is more than the adapter accepts."""
    reason = f"{size:,} bytes long, but debugpy's limit is 16 MiB per message"
    if message.get("type") == "response":
        header = {name: message.get(name) for name in ("type", "request_seq", "command")}
        return {**header, "success": False, "message": f"the response is {reason}; request part of it"}
    body = message.get("body") or {}
    text = f"{body.get('output', '')[:KEPT_OUTPUT]}\n[truncated by relay-agent: the output is {reason}]\n"
    return {"type": "event", "event": "output", "body": {"category": body.get("category", "console"), "output": text}}


# Patch that makes pydevd reject requests that it does not support, and answers those for the values of snapshots.
#
# For such a request, pydevd prints a line to the job's stdout and does not respond. debugpy's adapter waits for the
# response, so it answers no later request either. This affects every request of the protocol without a function in
# pydevd, such as `cancel` and `loadedSources`.


def install_rejection() -> None:
    """Patch pydevd in this process and its forked children."""
    from _pydevd_bundle.pydevd_net_command import NetCommand  # noqa: PLC0415 - in debug runs only, as below
    from _pydevd_bundle.pydevd_process_net_command_json import PyDevJsonCommandProcessor  # noqa: PLC0415

    process = PyDevJsonCommandProcessor.process_net_command_json

    def process_or_reject(processor: Any, debugger: Any, contents: bytes | str, *arguments: Any, **named: Any) -> None:
        """Replacement for `process_net_command_json`, which handles messages from the adapter in pydevd's thread."""
        if not UNSUPPORTED.is_off:
            with UNSUPPORTED.guarded():
                if (response := _response(processor, contents)) is not None:
                    debugger.writer.add_command(NetCommand(0, 0, response, is_json=True))
                    return
        process(processor, debugger, contents, *arguments, **named)

    PyDevJsonCommandProcessor.process_net_command_json = process_or_reject


def _response(processor: Any, contents: bytes | str) -> dict[str, Any] | None:
    """Return the response to a request for which pydevd has no function or no value, or None."""
    try:
        message = json.loads(contents)
    except ValueError:
        return None  # pydevd reports the error
    match message:
        case {"command": "variables", "seq": int(number), "arguments": {"variablesReference": int(found)}} if (
            found >= FIRST_SNAPSHOT
        ):
            body, response = {"variables": values_of(found)}, {"type": "response", "request_seq": number}
            return {**response, "command": "variables", "success": True, "body": body}
        case {"type": "request", "seq": int(number), "command": str(command)}:
            if hasattr(processor, f"on_{command.lower()}_request"):
                return None
            text = f"debugpy does not support '{command}'"
            return {"type": "response", "request_seq": number, "command": command, "success": False, "message": text}
    return None
