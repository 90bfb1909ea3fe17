"""Runs scripts as ranks that share one import of torch, which would take each of them over a second.

One connection is one node of a job (see `tests.support.machine.fork_server`):

    --> a line of JSON {"first", "ranks", "argv", "env", "cwd", "log"}
    <-- a line with the number of the node's process, and at its end a line with its exit status

Each rank is a fork of that process, and looks like `python SCRIPT ARGUMENTS` under torchrun: its arguments, import
path, `__main__`, environment and end are those of such a process. Unlike torchrun, the node's process neither ends the
other ranks when one fails, nor starts any again. It ends after all of them, with status 0 if each of them had it.
"""

import builtins
import os
import sys
import types
from pathlib import Path

import torch.distributed  # noqa: F401 - imported for the ranks

from tests.support.machine.fork_server import prepare, serve


def become_rank() -> list[str]:
    """Fork a process for each connection, and return in each of its ranks, with the script and its arguments."""
    connection, node = serve()
    os.setsid()
    connection.sendall(f"{os.getpid()}\n".encode())
    prepare(node["log"], node["log"], node["env"], node["cwd"])
    if fork_ranks(node["first"], node["ranks"]):
        connection.close()
        return node["argv"]
    statuses = [os.wait()[1] for _ in range(node["ranks"])]
    connection.sendall(f"{int(any(statuses))}\n".encode())
    os._exit(0)


def fork_ranks(first: int, ranks: int) -> bool:
    """Fork the ranks, and return whether this process is one of them."""
    os.environ["LOCAL_WORLD_SIZE"] = str(ranks)
    for local_rank in range(ranks):
        if not os.fork():
            os.environ |= {"RANK": str(first + local_rank), "LOCAL_RANK": str(local_rank)}
            return True
    return False


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
SCRIPT, *ARGUMENTS = become_rank()
MAIN = become(Path(SCRIPT), ARGUMENTS)
exec(compile(Path(SCRIPT).read_bytes(), SCRIPT, "exec"), vars(MAIN))
