"""Facts about programs whose import path leads to files with names of the standard library."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SHADOWED = ("asyncio", "code", "logging", "queue", "random", "secrets", "ssl", "token", "tokenize", "traceback")


@pytest.mark.parametrize("package", ["relay_agent", "relay_client", "relay_server"])
def test_the_standard_library_comes_first(package: str, tmp_path: Path) -> None:
    """A program starts as usual if PYTHONPATH has files of a project with names of the standard library."""
    for name in SHADOWED:
        (tmp_path / f"{name}.py").write_text("raise RuntimeError('a file of the project')\n")
    done = subprocess.run(
        [sys.executable, "-m", package, "--version"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        cwd="/",
    )
    assert (0, "") == (done.returncode, done.stderr)
