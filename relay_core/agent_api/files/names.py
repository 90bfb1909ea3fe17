"""Names of TensorBoard event files, and which paths of such files are safe to write to."""

from __future__ import annotations

import re

__all__ = ["is_event_file", "is_safe_path"]

MAX_PATH = 512
_NAME = re.compile(r"events\.out\.tfevents\.[^/]*")
"""The names that TensorBoard, TensorFlow and torch give to the files that they write."""
_PART = re.compile(r"[\w=,@+~%() .-]{1,255}")
"""A part of a path that is a valid file name on every operating system."""


def is_event_file(name: str) -> bool:
    """Return whether a file name is that of an event file."""
    return _NAME.fullmatch(name) is not None


def is_safe_path(path: str) -> bool:
    """Return whether a path is relative, stays below its directory, and names an event file."""
    parts = path.split("/")
    are_names = all(_PART.fullmatch(part) and part.strip(". ") and part == part.strip() for part in parts)
    return len(path) <= MAX_PATH and are_names and is_event_file(parts[-1])
