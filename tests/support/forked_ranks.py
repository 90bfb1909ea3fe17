"""Runs a script as ranks on one node that share one import of torch, which would take each of them over a second.

    python forked_ranks.py FIRST_RANK RANKS SCRIPT ARGUMENTS...

Each rank is a fork that looks like `python SCRIPT ARGUMENTS` under torchrun: its arguments, import path, `__main__`,
environment and end are those of such a process. Unlike torchrun, this program neither ends the other ranks when one
fails, nor starts any again. It ends after all of them, with status 0 if each of them had it.
"""

import builtins
import os
import sys
import types
from pathlib import Path

import torch.distributed  # noqa: F401 - imported for the ranks


def fork_ranks(first: int, ranks: int) -> None:
    """Return in each rank; in this process, wait for all of them and exit."""
    os.environ["LOCAL_WORLD_SIZE"] = str(ranks)
    for local_rank in range(ranks):
        if not os.fork():
            os.environ |= {"RANK": str(first + local_rank), "LOCAL_RANK": str(local_rank)}
            return
    statuses = [os.wait()[1] for _ in range(ranks)]
    sys.exit(any(statuses))


def become(script: Path, arguments: list[str]) -> types.ModuleType:
    """Make this process look like `python SCRIPT ARGUMENTS`, and return its empty `__main__`."""
    sys.argv = [str(script), *arguments]
    sys.orig_argv = [sys.executable, *sys.argv]
    sys.path[0] = str(script.parent)
    main = types.ModuleType("__main__")
    main.__dict__.update(__file__=str(script), __builtins__=builtins)
    sys.modules["__main__"] = main
    return main


# A rank must start these itself, and threads do not survive a fork.
assert not {"debugpy", "relay_agent", "relay_core"} & set(sys.modules)
assert len(list(Path("/proc/self/task").iterdir())) == 1, "torch has started a thread"
_, FIRST, RANKS, SCRIPT, *ARGUMENTS = sys.argv
fork_ranks(int(FIRST), int(RANKS))
MAIN = become(Path(SCRIPT), ARGUMENTS)
exec(compile(Path(SCRIPT).read_bytes(), SCRIPT, "exec"), vars(MAIN))
