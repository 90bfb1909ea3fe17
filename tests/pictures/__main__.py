"""`python -m tests.pictures` (`make pictures`): makes the pictures of README and the guides from the real programs.

Each picture has a function in `shots`, which runs a job, a relay-client and an editor, browser or terminal, waits for
the state that the picture shows, and takes it in light and dark colours. Everything runs in namespaces of its own
(`namespaces`), so that no name, path or port of this machine is in a picture.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from tests.pictures.files import FOLDER, sizes
from tests.pictures.namespaces import HOME, enter_namespaces
from tests.pictures.needs import missing
from tests.pictures.shots.all_ranks import all_ranks
from tests.pictures.shots.hang import hang
from tests.pictures.shots.page import page
from tests.pictures.shots.ranks_view import ranks_view
from tests.pictures.shots.table import table
from tests.pictures.stage import Stage, staged

SHOTS: list[Callable[[Stage], Awaitable[None]]] = [all_ranks, ranks_view, page, table, hang]


async def take(names: list[str]) -> None:
    """Make the pictures of these functions, or all; prints how long each takes."""
    for shot in SHOTS:
        if names and shot.__name__ not in names:
            continue
        started = time.monotonic()
        with tempfile.TemporaryDirectory(dir=HOME) as directory:
            async with staged(Path(directory)) as stage:
                await shot(stage)
        print(f"pictures: {shot.__name__}: {time.monotonic() - started:.0f} s", flush=True)


def main() -> int:
    """Make the pictures; return 1 if something that they need is missing."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.pictures", description="Makes the pictures in the documents."
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=" ".join(shot.__name__ for shot in SHOTS))
    names = parser.parse_args().names
    if unknown := set(names) - {shot.__name__ for shot in SHOTS}:
        parser.error(f"unknown picture: {', '.join(sorted(unknown))}")
    if lacking := missing():
        print(*(f"pictures: {each}" for each in lacking), sep="\n", file=sys.stderr)
        return 1
    enter_namespaces()
    asyncio.run(take(names))
    print(*(f"{path.relative_to(FOLDER)} {size:,} bytes" for path, size in sizes().items()), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
