"""Facts about the Markdown files of the repository: every link inside it leads somewhere, every test exists."""

import re
import subprocess
from itertools import takewhile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LINK = re.compile(r"\[[^\]\n]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#{1,6} +(.+?) *#*$", re.MULTILINE)
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)

TEST = re.compile(r"`(?:test_\w+|tests/[\w/]+\.py)`")


def tracked_pages() -> list[str]:
    """Return the Markdown files that belong to the repository."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return [name for name in listed.stdout.splitlines() if (ROOT / name).is_file()]


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as Markdown renderers make them."""
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    slugs = (re.sub(r"[^\w\- ]", "", heading.replace("`", "").lower()) for heading in HEADING.findall(text))
    return {slug.strip().replace(" ", "-") for slug in slugs}


def broken_links(page: Path) -> list[str]:
    """Return the links of a page that lead nowhere; links to other hosts are not followed."""
    found = []
    for link in LINK.findall(FENCE.sub("", page.read_text(encoding="utf-8"))):
        path, _, anchor = link.partition("#")
        if re.match(r"[a-z]+:", link):
            continue
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target)):
            found.append(link)
    return found


@pytest.mark.parametrize("name", tracked_pages())
def test_links_lead_somewhere(name: str) -> None:
    """Each link to a file of the repository names one that exists, and each anchor one of its headings."""
    assert [] == broken_links(ROOT / name)


def test_tests_that_pages_name_exist() -> None:
    """Each test to which a page refers as the proof of a sentence is there."""
    files = [*(ROOT / "tests").rglob("test_*.py")]
    defined = set(re.findall(r"def (test_\w+)", "".join(path.read_text(encoding="utf-8") for path in files)))
    defined |= {path.stem for path in files}
    named = {name for page in tracked_pages() for name in re.findall(r"`(test_\w+)`", (ROOT / page).read_text())}
    assert sorted(named - defined) == []


def test_threats_without_a_test() -> None:
    """Each row of the tables of the threat model names a test, or the file of one."""
    lines = (ROOT / "docs/concepts/threat-model.md").read_text(encoding="utf-8").splitlines()
    rules = [number for number, line in enumerate(lines) if line.startswith("|---")]
    rows = [line for first in rules for line in takewhile(lambda line: line.startswith("|"), lines[first + 1 :])]
    assert len(rows) > 30
    assert [row for row in rows if not TEST.search(row)] == []


def test_files_of_tests_that_pages_name_exist() -> None:
    """Each file of the tests that a page names in full is there."""
    texts = ((ROOT / page).read_text() for page in tracked_pages())
    named = {path for text in texts for path in re.findall(r"`(tests/[\w/]+\.py)`", text)}
    assert sorted(path for path in named if not (ROOT / path).exists()) == []
