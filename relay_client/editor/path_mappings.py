"""The `pathMappings` of an editor's `attach`: which directories on the laptop and on the node correspond.

missing                   set, if the job's script is in the editor's folder (or in relay-client's current directory)
a relative `remoteRoot`   becomes absolute: it is relative to the directory in which the job was started, but debugpy
                          would use the job's current directory
any other mapping         passes unchanged
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Callable, Mapping

from relay_client.editor.job_view import JobView
from relay_core.dap.messages import Arguments

FindRoot = Callable[[str, str], str]
"""Returns the local directory that contains a script, given the editor's folder and the script's name; "" if not
found."""
_ABSOLUTE = re.compile(r"/|~|\\\\|[A-Za-z]:[\\/]")
"""Matches the start of an absolute path on any system."""


def map_paths(arguments: Arguments, view: JobView, find_root: FindRoot) -> tuple[Arguments, str]:
    """Return the arguments of `attach` with mappings that fit the job, and a line that explains them to the user."""
    if not view.cwd:
        return arguments, ""
    mappings = arguments.get("pathMappings")
    if isinstance(mappings, list) and mappings:
        return {**arguments, "pathMappings": [_absolute(mapping, view.cwd) for mapping in mappings]}, ""
    if arguments.get("localRoot") and arguments.get("remoteRoot"):
        return _absolute(arguments, view.cwd), ""
    folder = arguments.get("workspaceFolder")
    local = find_root(folder if isinstance(folder, str) else "", view.script)
    if not local or local == view.cwd:
        return arguments, ""
    line = (
        f"the attach configuration has no pathMappings: {local} is mapped to {view.cwd} on {view.host}, where the job "
        f"was started. hint: to configure this, add {mapping_text(local)}"
    )
    return {**arguments, "pathMappings": [{"localRoot": local, "remoteRoot": view.cwd}]}, line


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
