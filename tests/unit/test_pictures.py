"""Facts about the pictures of the documents, which `make pictures` makes."""

import re
from pathlib import Path

import pytest

from tests.pictures.files import FOLDER, MAX_BYTES
from tests.support.jobs.processes import ROOT

PICTURE = re.compile(
    r"<picture>\s*"
    r'<source media="\(prefers-color-scheme: dark\)" srcset="(?P<dark>[^"]+)">\s*'
    r'<img src="(?P<light>[^"]+)" width="\d+" alt="[^"]{40,}">\s*'
    r"</picture>"
)

pytestmark = pytest.mark.skipif(not FOLDER.exists(), reason="the source distribution has no pictures")


def pages() -> list[Path]:
    return [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]


def shown() -> dict[Path, Path]:
    """Return the light and the dark file of each picture in a document."""
    found = {}
    for page in pages():
        for match in PICTURE.finditer(page.read_text()):
            found[(page.parent / match["light"]).resolve()] = (page.parent / match["dark"]).resolve()
    return found


def test_pictures_have_one_form() -> None:
    """GitHub and the hook of MkDocs understand each picture, which has a width and a description."""
    for page in pages():
        text = page.read_text()
        assert text.count("<img") + text.count("![") == len(PICTURE.findall(text)), page


def test_pictures_are_there() -> None:
    """Each picture in a document exists in a light and a dark version, and no file is unused."""
    assert {*FOLDER.iterdir()} == {*shown().keys(), *shown().values()}
    for light, dark in shown().items():
        assert light.name.replace("-light.", "-dark.") == dark.name


def test_pictures_are_small() -> None:
    """A page with pictures loads fast."""
    assert [] == [path for path in FOLDER.iterdir() if path.stat().st_size > MAX_BYTES[path.suffix]]


def test_readme_is_short() -> None:
    """README stays an overview."""
    assert len((ROOT / "README.md").read_text().splitlines()) < 200
