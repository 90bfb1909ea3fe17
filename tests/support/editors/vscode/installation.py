"""Where the parts of a real VS Code are that `make extras` installs, or why there are none."""

import importlib.util
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Installation", "NotInstalled", "find_installation"]

ROOT = Path(__file__).resolve().parents[4]
FOLDER = ROOT / ".code-server"
PYTHON_DEBUGGER_VARIABLE = "TESTS_PYTHON_DEBUGGER_VSIX"
"""A package of Microsoft's own Python Debugger to use instead of the stand-in."""


class NotInstalled(Exception):
    """A part is missing; the text gives the reason."""


@dataclass(frozen=True)
class Installation:
    """The programs that a window is made of."""

    node: Path
    """Playwright's own Node.js, because that of the system may be too old for code-server."""
    code_server: Path
    chromium: Path
    python_debugger: Path | None
    """A package of the real extension, if one is given."""


def find_installation() -> Installation:
    """Return where everything is.

    Raises:
        NotInstalled: `make extras` has not been run, or could not install a part.
    """
    if not (FOLDER / ".ready").exists():
        missing = FOLDER / "missing"
        raise NotInstalled(missing.read_text().strip() if missing.exists() else "no VS Code here: run `make extras`")
    playwright = importlib.util.find_spec("playwright")
    if playwright is None or playwright.origin is None:
        raise NotInstalled("playwright is not installed in this environment: run `make extras`")
    chromium = shutil.which("chromium")
    if chromium is None:
        raise NotInstalled("chromium is not installed")
    extension = os.environ.get(PYTHON_DEBUGGER_VARIABLE)
    return Installation(
        node=Path(playwright.origin).parent / "driver" / "node",
        code_server=FOLDER / "node_modules" / "code-server" / "out" / "node" / "entry.js",
        chromium=Path(chromium),
        python_debugger=Path(extension) if extension else None,
    )
