"""Patch that lets an editor attach to a process whose working directory was removed.

pydevd reads the working directory at each `attach`, and for each file that code refers to by a relative path. If the
directory does not exist any more, this raises an exception, which ends the session before it has begun, or the tracing
of a thread. With this patch, pydevd's modules get the directory in which the process was started instead. The job is
not affected, because only the names `os` and `os_path_real_path` in these modules refer to other objects.
"""

from __future__ import annotations

import os
from typing import Any

from relay_agent.debugpy_internals.table import REMOVED_DIRECTORY
from relay_agent.paths import current_directory, start_directory

__all__ = ["install"]


class _Path:
    """The module `os.path`, with functions that do not need a working directory."""

    def __getattr__(self, name: str) -> Any:
        return getattr(os.path, name)

    @staticmethod
    def abspath(path: str) -> str:
        try:
            return os.path.abspath(path)  # noqa: PTH100 - as pydevd does, here and below
        except FileNotFoundError:
            return os.path.normpath(os.path.join(_Os.getcwd(), path))  # noqa: PTH118

    @staticmethod
    def realpath(path: str) -> str:
        try:
            return os.path.realpath(path)
        except FileNotFoundError:  # not `abspath`, which removes "link/.."
            return os.path.realpath(os.path.join(_Os.getcwd(), path))  # noqa: PTH118


class _Os:
    """The module `os`, in the same way."""

    path = _Path()

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    @staticmethod
    def getcwd() -> str:
        return current_directory() or start_directory() or os.sep


def install() -> None:
    """Patch pydevd in this process and its forked children."""
    if not REMOVED_DIRECTORY.is_available():
        return
    import pydevd_file_utils  # noqa: PLC0415 - in debug runs only, as the rest
    from _pydevd_bundle import pydevd_process_net_command_json  # noqa: PLC0415

    pydevd_process_net_command_json.os = _Os()
    pydevd_file_utils.os = _Os()
    pydevd_file_utils.os_path_real_path = _Path.realpath
