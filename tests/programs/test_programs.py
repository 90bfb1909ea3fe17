"""The fact about odd programs: with relay-debug, they do what they do without it."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.programs.catalogue import CATALOGUE
from tests.programs.odd import RUN, WAYS, Odd
from tests.programs.ways import Ways, difference, running_ways
from tests.support.network.relay import local_relay

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]

PROGRAMS = [
    pytest.param(odd, id=odd.name, marks=pytest.mark.xdist_group(f"programs, {kind}"))
    for kind, programs in CATALOGUE.items()
    for odd in programs
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def ways(tls_directory: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Ways]:
    """A relay, an agent and a client, which all programs share."""
    async with local_relay(tls_directory) as relay, running_ways(relay, tmp_path_factory.mktemp("programs")) as running:
        yield running


@pytest.mark.parametrize("odd", PROGRAMS)
async def test_program(ways: Ways, tmp_path: Path, odd: Odd) -> None:
    """Its status, output and files are those of a plain run, except for what the documentation states."""
    if odd.missing:
        pytest.skip(odd.missing)
    # The other ways take most of the time; `python -m tests.programs` runs all programs in all ways.
    chosen = [way for way in WAYS if way == RUN or odd.is_sensitive or way in odd.reported_in]
    plain, *others = await asyncio.gather(
        ways.plain(odd, tmp_path / "0"),
        *(ways.with_us(odd, tmp_path / str(number), way) for number, way in enumerate(chosen, 1)),
    )
    for way, other in zip(chosen, others, strict=True):
        found = difference(plain, other)
        assert found <= odd.differs.get(way, frozenset()), (way, plain, other)
        if found and way in odd.reported_in:
            assert odd.line in other.lines
