#!/usr/bin/env python3
"""Runs tests/gpu on the GPU of this machine, and prints a table: `make gpu`. Without such a GPU, prints the reason.

The interpreter that runs this script must have torch with CUDA. The tests get a virtual environment of their own, which
also sees the packages of that interpreter; nothing is installed into the interpreter itself. What the tests need
besides torch comes from build/gpu-wheels (`make gpu-wheels`), without a network, or from the package index.
"""

import platform
import shutil
import subprocess
import sys
import venv
from pathlib import Path

VENV = Path(f".venv-gpu-{platform.python_version_tuple()[0]}.{platform.python_version_tuple()[1]}")
WHEELS = Path("build/gpu-wheels")
PROJECT = ".[gpu-tests]"
NOT_INSTALLED = (
    "make gpu: what the tests need cannot be installed; without a network, run 'make gpu-wheels' on another machine, "
    f"and copy its {WHEELS} here"
)
PROBE_TIMEOUT = 60
"""Time limit in seconds for nvidia-smi, and for torch to find the GPU."""


def main(arguments: list[str]) -> int:
    """Run the tests, and return the exit status of pytest; 0 if the machine has no GPU."""
    if reason := missing():
        print(f"make gpu: no test was run, because {reason}")
        return 0
    python = prepared_python()
    return subprocess.run([python, ".ci/gpu_table.py", *arguments], check=False).returncode


def missing() -> str:
    """Return what prevents the tests from using a GPU; "" if nothing does."""
    if shutil.which("nvidia-smi") is None:
        return "this machine has no driver of NVIDIA (nvidia-smi is missing)"
    if error := error_of("nvidia-smi", "-L"):
        return f"nvidia-smi finds no GPU: {error}"
    code = "import torch; torch.cuda.is_available() or exit('torch finds no GPU')"
    if error := error_of(sys.executable, "-c", code):
        return f"{sys.executable} cannot use the GPU: {error}; select an interpreter with PYTHON=..."
    return ""


def error_of(*command: str) -> str:
    """Return the last line that a failed command has printed; "" if the command succeeds."""
    try:
        found = subprocess.run(command, capture_output=True, text=True, timeout=PROBE_TIMEOUT, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    lines = (found.stdout + found.stderr).strip().splitlines()
    return (lines or [f"exit status {found.returncode}"])[-1] if found.returncode else ""


def prepared_python() -> str:
    """Return the interpreter of the virtual environment, after installing the tests' requirements into it."""
    python = VENV / "bin/python"
    # The interpreter may be in a virtual environment itself, whose packages --system-site-packages would not include;
    # and Debian's Python has no ensurepip.
    venv.create(VENV, clear=True, with_pip=False, symlinks=True)
    packages = next((VENV / "lib").glob("python*/site-packages"))
    (packages / "outer.pth").write_text(
        "\n".join(path for path in sys.path if path.endswith("-packages")), encoding="utf-8"
    )
    source = ["--no-index", "--find-links", str(WHEELS)] if WHEELS.is_dir() else []
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--disable-pip-version-check"]
    if subprocess.run([*pip, *source, "--editable", PROJECT], check=False).returncode:
        sys.exit(NOT_INSTALLED)
    return str(python)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
