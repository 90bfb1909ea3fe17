"""What running processes are doing, as a short text: `in all_reduce`, `running (train.py:52)`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath

from relay_client.stacks.groups import Process, Reply, is_library, read_replies

__all__ = ["places"]


def places(reply: Reply) -> Mapping[int, str]:
    """Return what the main threads of an agent's processes are doing, by logical port.

    For a process in library code, the text names the innermost function, in which the process is usually waiting.
    """
    found = {process.stacks.port: _place(process) for process in read_replies([reply])}
    return {port: place for port, place in found.items() if port is not None and place}


def _place(process: Process) -> str:
    main = process.main
    if main is None or not main.frames:
        return ""
    inner = main.frames[-1]
    if is_library(inner):
        return f"in {inner.function}"
    return f"running ({PurePosixPath(inner.file).name}:{inner.line})"
