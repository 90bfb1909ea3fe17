"""What running processes are doing, as a short text: `in all_reduce`, `running (train.py:52)`."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import PurePosixPath

from relay_client.stacks.groups import Process, Reply, is_library, read_replies
from relay_core.agent_api.stacks import ThreadStack

__all__ = ["COLLECTIVES", "collective_of", "places"]

COLLECTIVES = frozenset(
    {
        *("all_reduce", "all_reduce_coalesced", "reduce", "broadcast", "broadcast_object_list"),
        *("all_gather", "all_gather_into_tensor", "_all_gather_base", "all_gather_object", "gather", "gather_object"),
        *("reduce_scatter", "reduce_scatter_tensor", "_reduce_scatter_base", "scatter", "scatter_object_list"),
        *("all_to_all", "all_to_all_single", "barrier", "monitored_barrier"),
    }
)
"""Functions of `torch.distributed` that return once all ranks of a group have called them."""


def places(reply: Reply) -> Mapping[int, str]:
    """Return what the main threads of an agent's processes are doing, by logical port.

    For a process in library code, the text names the collective operation in which it is or, if there is none, the
    innermost function, in which the process is usually waiting.
    """
    found = {process.stacks.port: _place(process) for process in read_replies([reply])}
    return {port: place for port, place in found.items() if port is not None and place}


def _place(process: Process) -> str:
    main = process.main
    if main is None or not main.frames:
        return ""
    inner = main.frames[-1]
    if is_library(inner):
        return f"in {collective_of(main) or inner.function}"
    return f"running ({PurePosixPath(inner.file).name}:{inner.line})"


def collective_of(thread: ThreadStack) -> str:
    """Return the collective operation that the user's code has called and that has not returned, or ""."""
    called = itertools.takewhile(is_library, reversed(thread.frames))
    names = (frame.function for frame in called if "torch/distributed/" in frame.file.replace("\\", "/"))
    return next((name for name in names if name in COLLECTIVES), "")
