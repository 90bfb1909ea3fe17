"""Patch that makes pydevd reject requests that it does not support.

For such a request, pydevd prints a line to the job's stdout and does not respond. debugpy's adapter waits for the
response, so it answers no later request either. This affects every request of the protocol without a function in
pydevd, such as `cancel`, `dataBreakpointInfo` and `loadedSources`.
"""

from __future__ import annotations

import json
from typing import Any

from relay_agent.debugpy_internals.table import UNSUPPORTED

__all__ = ["install"]


def install() -> None:
    """Patch pydevd in this process and its forked children."""
    if not UNSUPPORTED.is_available():
        return
    from _pydevd_bundle.pydevd_net_command import NetCommand  # noqa: PLC0415 - in debug runs only, as below
    from _pydevd_bundle.pydevd_process_net_command_json import PyDevJsonCommandProcessor  # noqa: PLC0415

    process = PyDevJsonCommandProcessor.process_net_command_json

    def process_or_reject(processor: Any, debugger: Any, contents: bytes | str, *arguments: Any, **named: Any) -> None:
        """Replacement for `process_net_command_json`, which handles messages from the adapter in pydevd's thread."""
        if not UNSUPPORTED.is_off:
            with UNSUPPORTED.guarded():
                if (response := _rejection(processor, contents)) is not None:
                    debugger.writer.add_command(NetCommand(0, 0, response, is_json=True))
                    return
        process(processor, debugger, contents, *arguments, **named)

    PyDevJsonCommandProcessor.process_net_command_json = process_or_reject


def _rejection(processor: Any, contents: bytes | str) -> dict[str, Any] | None:
    """Return the response to a request for which pydevd has no function, or None."""
    try:
        message = json.loads(contents)
    except ValueError:
        return None  # pydevd reports the error
    match message:
        case {"type": "request", "seq": int(number), "command": str(command)}:
            if hasattr(processor, f"on_{command.lower()}_request"):
                return None
            text = f"debugpy does not support '{command}'"
            return {"type": "response", "request_seq": number, "command": command, "success": False, "message": text}
    return None
