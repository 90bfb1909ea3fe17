"""PYTHONPATH for the processes that this one starts."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["in_front"]


def in_front(directory: Path, python_path: str | None) -> str:
    """Return `python_path` with `directory` as its first entry and nowhere else."""
    others = [entry for entry in python_path.split(os.pathsep) if entry != str(directory)] if python_path else []
    return os.pathsep.join([str(directory), *others])
