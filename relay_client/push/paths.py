"""Where a local file may be on a node: the paths that are tried, in this order.

its absolute path, then its real path    if client and node share a file system; as for an editor without `pathMappings`
relative to the current directory        which corresponds to the job's start directory, as `"."` in `pathMappings`
"""

from __future__ import annotations

import os
from pathlib import Path

from relay_client.editor.mappings import remote_path

__all__ = ["absolute_paths", "node_paths"]


def absolute_paths(path: Path) -> tuple[str, ...]:
    """Return the absolute path of a file, and its real path if that is another one."""
    return tuple(dict.fromkeys((os.path.abspath(path), os.path.realpath(path))))  # noqa: PTH100 - keeps links


def node_paths(path: Path) -> tuple[str, ...]:
    """Return the paths at which a local file may be on a node; the last one is for display."""
    here = Path.cwd()
    found = absolute_paths(path)
    mapping = {"pathMappings": [{"localRoot": str(here), "remoteRoot": "."}]}
    relative = (remote_path(each, mapping, ".") for each in reversed(found))
    return (*found, *dict.fromkeys(filter(None, relative)))
