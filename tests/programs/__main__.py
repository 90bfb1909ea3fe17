"""Runs the odd programs in all ways, and prints what differs from a plain run.

python -m tests.programs                 all programs
python -m tests.programs fork gevent     those whose names contain one of these texts
"""

import asyncio
import sys
import tempfile
import time
from pathlib import Path

from tests.programs.catalogue import CATALOGUE
from tests.programs.odd import WAYS, Odd
from tests.programs.ways import Outcome, Ways, difference, running_ways
from tests.support.network.relay import local_relay


async def main(names: list[str]) -> int:
    """Print a row for each program; return 1 if one differs in a way that the catalogue does not state."""
    unexpected = 0
    with tempfile.TemporaryDirectory() as temporary:
        directory = Path(temporary)
        async with local_relay(directory / "tls") as relay, running_ways(relay, directory) as ways:
            for programs in CATALOGUE.values():
                for odd in programs:
                    if not names or any(name in odd.name for name in names):
                        unexpected += await show(odd, ways, directory / odd.name, is_long=bool(names))
    return 1 if unexpected else 0


async def show(odd: Odd, ways: Ways, directory: Path, *, is_long: bool) -> int:
    """Print the row of a program, and return how many ways differ without being stated."""
    if odd.missing:
        print(f"{odd.name}: skipped: {odd.missing}", flush=True)
        return 0
    plain = await ways.plain(odd, directory / "0")
    unexpected, cells = 0, []
    for number, way in enumerate(WAYS, 1):  # directories with names of one length, because rich draws frames
        started = time.monotonic()
        other = await ways.with_us(odd, directory / str(number), way)
        found = difference(plain, other)
        is_stated = found <= odd.differs.get(way, frozenset())
        unexpected += not is_stated
        cells.append(f"{way} {'same' if not found else ' '.join(sorted(found))} {time.monotonic() - started:.1f} s")
        if is_long or not is_stated:
            _explain(plain, other, way)
    print(f"{odd.name}: {'; '.join(cells)}", flush=True)
    return unexpected


def _explain(plain: Outcome, other: Outcome, way: str) -> None:
    for name in ("status", "stdout", "stderr", "files"):
        if getattr(plain, name) != getattr(other, name):
            print(f"  {way} {name}: {getattr(plain, name)!r:.600}\n    became {getattr(other, name)!r:.3000}")
    print(f"  {way} lines: {other.lines}")


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[1:])))
