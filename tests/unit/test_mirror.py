"""The tests mirror the sources: `relay_core/hyco/sas.py` is tested by `tests/unit/relay_core/hyco/test_sas.py`."""

from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("relay_core", "relay_agent", "relay_client", "relay_server")

ELSEWHERE: dict[str, str] = {}
"""Sources whose facts need more than one module, and the tests that state them."""

ASPECTS: dict[str, str] = {}
"""Test files about one aspect of a source of another name."""


def sources() -> Iterator[str]:
    """Yield all modules with code of their own, as paths without the suffix."""
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            if not path.name.startswith("__"):
                yield str(path.relative_to(ROOT).with_suffix(""))


def test_of(source: str) -> str:
    path = Path("tests/unit", source + ".py")
    return str(path.with_name(f"test_{path.name.lstrip('_')}"))
