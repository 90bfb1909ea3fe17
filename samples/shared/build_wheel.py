"""Builds a wheel from this checkout for use in images, because relay-debug is not on any package index.

    python build_wheel.py FOLDER     writes the wheel, removes older wheels, and prints the new wheel's path and SHA-256

An image that installs the package by name would run the code of whoever registers that name on the index. The image
therefore contains the package as a file, and `build_context` also pins the file's hash, so that only the wheel that was
built here can be installed.
"""

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
IN_IMAGE = "/image"
"""The directory in the image to which a Dockerfile copies the files from `build_context`."""
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
    """Remove older wheels from a folder, build a wheel from this checkout there, and return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("relay_debug-*.whl"):
        old.unlink()
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(CHECKOUT)]
    # By default, pip tries to download hatchling, which builds the wheel, six times: a minute without a network.
    environment = {"PIP_RETRIES": "0", **os.environ}
    done = subprocess.run(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if done.returncode:
        hint = "without a network, build the wheel elsewhere and add --wheel FILE"
        sys.exit(f"error: cannot build a wheel from {CHECKOUT}; hint: {hint}; pip's output:\n{done.stdout}")
    (wheel,) = folder.glob("relay_debug-*.whl")
    return wheel


def build_context(image: Path, folder: Path, wheel: Path | None = None) -> Path:
    """Fill a folder with an image's files, a wheel, and a requirement that pins the wheel's hash; return the folder.

    Args:
        image: Folder with the Dockerfile.
        folder: An empty folder for the context.
        wheel: An existing wheel; by default, a wheel is built from this checkout.
    """
    shutil.copytree(image, folder, dirs_exist_ok=True)
    wheel = build_wheel(folder) if wheel is None else Path(shutil.copy(wheel, folder))
    requirement = f"relay-debug @ file://{IN_IMAGE}/{wheel.name}#sha256={sha256(wheel)}\n"
    (folder / PINNED).write_text(requirement)
    return folder


def describe(context: Path) -> dict[str, str]:
    """Return the SHA-256 of each file in a build context."""
    return {path.name: sha256(path) for path in sorted(context.iterdir())}


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal digits."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


if __name__ == "__main__":
    sys.exit(main())
