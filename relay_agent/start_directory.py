"""The directory in which this process was started, even if the program has changed its directory since.

In an editor's `pathMappings`, `"."` means this directory. A program may have changed it: hydra, for example, changes
the directory before a job's own code runs.
"""

from __future__ import annotations

import os
import sys

__all__ = ["start_directory"]


def _current() -> str:
    try:
        return os.getcwd()  # noqa: PTH109 - pathlib costs 10 ms here, as below
    except OSError:  # it was removed
        return ""


_at_import = _current()
"""Programs import this package before they change their directory."""


def start_directory() -> str:
    """Return the directory, or "" if it is unknown.

    Python makes `__file__` of the main module absolute when the program starts. If it ends with the relative path on
    the command line, the rest is the directory. Programs given in another form do not reveal the directory.
    """
    name = next((text for text in sys.orig_argv[1:] if text == sys.argv[0]), "") if sys.argv else ""
    file = getattr(sys.modules.get("__main__"), "__file__", None) or ""
    if name.endswith(".py") and not os.path.isabs(name) and file.endswith(os.sep + name):  # noqa: PTH117
        return os.path.normpath(file[: -len(name)])
    return _at_import
