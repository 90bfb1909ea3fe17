"""Finds the local directory that contains the code of a job."""

from __future__ import annotations

from pathlib import Path

__all__ = ["find_local_root"]


def find_local_root(folder: str, script: str) -> str:
    """Return the first of the editor's folder and the current directory that contains the job's script, or "".

    Args:
        folder: The folder that the editor has opened, or "".
        script: A file name, or the name of a module.
    """
    if not script:
        return ""
    relative = Path(script) if script.endswith(".py") else Path(*script.split("."))
    for root in ([Path(folder)] if folder else []) + [Path.cwd()]:
        if any((root / each).exists() for each in (relative, relative.with_suffix(".py"))):
            return str(root)
    return ""
