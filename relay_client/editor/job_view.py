"""What relay-client knows about the job behind one connection, and the `pathMappings` of the editor's `attach`."""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from relay_core.agent_api.announcement import Ending
from relay_core.dap.messages import Arguments


@dataclass(frozen=True)
class JobView:
    """A snapshot; unknown fields are empty."""

    port: int
    """The logical port."""
    hybrid_connection: str = ""
    label: str = ""
    """Name of the target, with its node if known: `rank 0 on node-1`; with its port if several jobs have a rank 0."""
    is_alone: bool = False
    """True if the target is the only one in its job."""
    host: str = ""
    cwd: str = ""
    """The directory in which the target was started."""
    script: str = ""
    """The file or module that the target runs, without its directory."""
    holder: str = ""
    """Who has attached a debugger, as in `held by bob@laptop (since 12:03)`."""
    away_reason: str = ""
    """Why the tunnel has no connection at the moment; "" if it has one."""
    is_running: bool = False
    """True if the target is currently announced, and therefore has not exited."""
    announces_endings: bool = False
    """True if the agent announces why a target has ended."""
    ending: Ending | None = None
    """How the target has ended."""
    other_ports: tuple[int, ...] = ()
    """The logical ports of the registered processes, as long as none of them has had this port."""
    is_stopped: bool = False
    """True if the debugger has stopped the target."""
    peer_timeout: float | None = None
    """Seconds for which other ranks wait for a stopped target; None if they wait long enough, or if it is unknown."""
    pushes: int = 0
    """Number of times that the target's code has been replaced."""
    replaced: str = ""
    """A sentence about the stop of the debugger that this connection replaces if it can attach; "" if it had none."""

    @property
    def name(self) -> str:
        """The target, or the port that leads to it."""
        return self.label or f"port {self.port}"

    @property
    def subject(self) -> str:
        """Name of the target in sentences about how it ended."""
        return self.label if self.label and not self.is_alone else "the job"


# The `pathMappings` of an editor's `attach`: which directories on the laptop and on the node correspond.
#
# missing                   set, if the job's script is in the editor's folder (or in relay-client's current directory)
# a relative `remoteRoot`   becomes absolute: it is relative to the directory in which the job was started, but debugpy
#                           would use the job's current directory
# any other mapping         passes unchanged

FindRoot = Callable[[str, str], str]
"""Returns the local directory that contains a script, given the editor's folder and the script's name; "" if not
found."""
_ABSOLUTE = re.compile(r"/|~|\\\\|[A-Za-z]:[\\/]")
"""Matches the start of an absolute path on any system."""


class Mapped(NamedTuple):
    """Arguments of `attach`, and a line that explains them to the user."""

    arguments: Arguments
    line: str = ""


def map_paths(arguments: Arguments, view: JobView, find_root: FindRoot) -> Mapped:
    """Return the arguments with mappings that fit the job."""
    if not view.cwd:
        return Mapped(arguments)
    mappings = arguments.get("pathMappings")
    if isinstance(mappings, list) and mappings:
        return Mapped({**arguments, "pathMappings": [_absolute(mapping, view.cwd) for mapping in mappings]})
    if arguments.get("localRoot") and arguments.get("remoteRoot"):
        return Mapped(_absolute(arguments, view.cwd))
    folder = arguments.get("workspaceFolder")
    local = find_root(folder if isinstance(folder, str) else "", view.script)
    if not local or local == view.cwd:
        return Mapped(arguments)
    line = (
        f"the attach configuration has no pathMappings: {local} is mapped to {view.cwd} on {view.host}, where the job "
        f"was started. hint: to configure this, add {mapping_text(local)}"
    )
    return Mapped({**arguments, "pathMappings": [{"localRoot": local, "remoteRoot": view.cwd}]}, line)


def mapping_text(local: str) -> str:
    """Return the line for launch.json that maps a local directory to the one in which the job was started."""
    return f'"pathMappings": {json.dumps([{"localRoot": local, "remoteRoot": "."}], ensure_ascii=False)}'


def remote_path(local: str, arguments: Arguments, cwd: str) -> str:
    """Return the file on the node to which a local file is mapped, relative to `cwd` if inside it; "" if unmapped.

    Args:
        local: A file on the laptop.
        arguments: The arguments of `attach`, with absolute directories.
        cwd: The directory in which the job was started.
    """
    mappings = arguments.get("pathMappings")
    path = local.replace("\\", "/")
    for mapping in mappings if isinstance(mappings, list) else []:
        match mapping:
            case {"localRoot": str(local_root), "remoteRoot": str(remote_root)}:
                root = local_root.replace("\\", "/").rstrip("/") + "/"
                if path.startswith(root):
                    remote = posixpath.join(remote_root, path[len(root) :])
                    return remote.removeprefix(cwd.rstrip("/") + "/") if cwd else remote
    return ""


def _absolute(mapping: object, cwd: str) -> dict[str, object]:
    """Return a mapping with an absolute `remoteRoot`."""
    fields: dict[str, object] = dict(mapping) if isinstance(mapping, Mapping) else {}
    remote = fields.get("remoteRoot")
    if isinstance(remote, str) and remote and not _ABSOLUTE.match(remote):
        fields["remoteRoot"] = posixpath.normpath(posixpath.join(cwd, remote))
    return fields
