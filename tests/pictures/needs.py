"""What the pictures need beside the packages of `dev`."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
from collections.abc import Iterator

from tests.pictures.namespaces import UNSHARE
from tests.support.editors.vscode.installation import ROOT, NotInstalled, find_installation

__all__ = ["EXTENSION", "missing"]

EXTENSION = ROOT / "build" / "relay-debug.vsix"


def missing() -> list[str]:
    """Return a sentence for each part that is missing."""
    return [*_parts(), *_permissions()]


def _parts() -> Iterator[str]:
    try:
        find_installation()
    except NotInstalled as reason:
        yield str(reason)
    if importlib.util.find_spec("torch") is None:
        yield "torch is not installed: run `make extras`"
    if importlib.util.find_spec("PIL") is None:
        yield "Pillow is not installed: run `make pictures`"
    if not EXTENSION.exists():
        yield "the extension is not packed: run `make vsix`"
    for program in ("ip", "unshare"):
        if shutil.which(program) is None:
            yield f"the program {program} is not installed"


def _permissions() -> Iterator[str]:
    if shutil.which("unshare") is not None:
        command = [*UNSHARE, "true"]
        if subprocess.run(command, check=False, capture_output=True).returncode:
            yield "this user cannot make namespaces: run `make pictures` as root"
