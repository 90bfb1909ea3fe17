"""Linux namespaces in which the programs of a picture run: names, paths and ports are those of an example."""

from __future__ import annotations

import os
import shutil
import sys

__all__ = ["HOME", "UNSHARE", "VENV", "enter_namespaces", "on_host"]

HOME = "/mnt"
"""A directory of these programs alone."""
USER, LAPTOP = "alice", "laptop"
IS_INSIDE = "PICTURES_NAMESPACES"
"""A variable that is set inside."""
UNSHARE = [
    *("unshare", "--uts", "--net", "--mount", "--pid", "--mount-proc", "--fork", "--kill-child"),
    *([] if os.getuid() == 0 else ["--user", "--map-root-user"]),
]
"""All processes inside end with this one, however it ends."""
VENV = f"{HOME}/venv"
"""This program's virtual environment, for the jobs."""
SET_UP = (
    f"hostname {LAPTOP} && ip link set lo up && mount -t tmpfs none {HOME} && mkdir {VENV}"
    f' && mount --bind "$0" {VENV} && "$@"; exit $?'
)
"""The shell stays as the parent of orphans, such as the agents."""


def enter_namespaces() -> None:
    """Continue as this program with its own host name, network, processes and directory HOME."""
    if IS_INSIDE in os.environ:
        return
    environment = {**os.environ, IS_INSIDE: "1", "LOGNAME": USER, "USER": USER}
    command = [*UNSHARE, "sh", "-c", SET_UP, sys.prefix, sys.executable, *sys.orig_argv[1:]]
    os.execvpe(command[0], command, environment)


def on_host(name: str, command: list[str]) -> list[str]:
    """Return a command that runs another one on a host of this name."""
    shell = shutil.which("sh") or "sh"
    return ["unshare", "--uts", shell, "-c", f'hostname {name} && exec "$@"', "sh", *command]
