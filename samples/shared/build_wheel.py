"""Builds the wheel of this checkout, for images: relay-debug is not on any package index.

    python build_wheel.py FOLDER     writes the wheel, removes older ones, and prints its name and SHA-256

An image that installs the package by name would run the code of whoever registers that name on the index. The image
therefore gets the package as a file, and `build_context` also pins the file's hash, so that only the wheel that was
built here can be installed.
"""

import argparse
import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
IN_IMAGE = "/image"
"""The directory in the image to which a Dockerfile copies its `build_context`."""
PINNED = "relay-debug.txt"
"""The requirements file that `build_context` adds."""


def main() -> int:
    """Build the wheel, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    wheel = build_wheel(parser.parse_args().folder)
    print(f"{wheel} sha256:{sha256(wheel)}")
    return 0


def build_wheel(folder: Path) -> Path:
    """Build the wheel of this checkout into a folder, remove older ones, and return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("relay_debug-*.whl"):
        old.unlink()
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(CHECKOUT)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        sys.exit(f"error: cannot build the wheel of {CHECKOUT}; pip's output:\n{done.stdout}")
    (wheel,) = folder.glob("relay_debug-*.whl")
    return wheel


def build_context(image: Path, folder: Path, wheel: Path | None = None) -> Path:
    """Return a build context with the files of an image, a wheel, and a requirement that pins the wheel by its hash.

    Args:
        image: Folder with the Dockerfile.
        folder: An empty folder for the context.
        wheel: An existing wheel; by default that of this checkout is built.
    """
    shutil.copytree(image, folder, dirs_exist_ok=True)
    wheel = build_wheel(folder) if wheel is None else Path(shutil.copy(wheel, folder))
    requirement = f"relay-debug @ file://{IN_IMAGE}/{wheel.name}#sha256={sha256(wheel)}\n"
    (folder / PINNED).write_text(requirement)
    return folder


def describe(context: Path) -> dict[str, str]:
    """Return the SHA-256 of each file of a build context."""
    return {path.name: sha256(path) for path in sorted(context.iterdir())}


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal digits."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


if __name__ == "__main__":
    sys.exit(main())
