"""The failures that the documents describe, and whether a program printed what they state."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from tests.rehearsal.guide import GUIDE
from tests.rehearsal.report import Answer
from tests.samples.kit import ROOT

LIVE = ROOT / "docs" / "concepts" / "live-azure.md"
_COMMAND = re.compile(r"(relay-client|relay-agent|az|doctor)\b(?!.*:)|--")
"""A code span that names what was run, not what was printed."""
_CODE = re.compile(r"exit code (\d+)")


@dataclass(frozen=True)
class Row:
    """One failure of a document's table."""

    document: Path
    subject: str
    """What the first column of the page about live Azure states, or the symptom."""
    symptom: str

    @property
    def sentences(self) -> list[str]:
        """The texts that a program prints; `...` stands for any text."""
        return [span for span in re.findall(r"`([^`]+)`", self.symptom) if not _COMMAND.match(span)]

    @property
    def codes(self) -> set[int]:
        """The exit codes that the symptom names."""
        return {int(code) for code in _CODE.findall(self.symptom)}

    def differences(self, printed: str, code: int | None) -> list[str]:
        """What the document states and the program did not do, and the reverse."""
        missing = [text for text in self.sentences if not _expression(text).search(printed)]
        found = [f"`{text}` was not printed" for text in missing]
        if self.codes != ({code} if code else set()):
            found.append(f"the document states exit code {', '.join(map(str, self.codes)) or 'none'}, it was {code}")
        return found

    def shown_in(self, printed: str) -> str:
        """The line that contains the longest of the sentences, or the last line."""
        lines = [line.strip() for line in printed.splitlines() if line.strip()]
        expressions = [_expression(text) for text in sorted(self.sentences, key=len, reverse=True)]
        return next((line for one in expressions for line in lines if one.search(line)), lines[-1] if lines else "")


def _expression(text: str) -> re.Pattern[str]:
    return re.compile(".*".join(re.escape(part.strip()) for part in text.split("...")))


def rows() -> list[Row]:
    """The failures of both pages, in order: the tables of the one, and the last table of the other."""
    live = [Row(LIVE, cells[0], cells[2]) for cells in _cells(LIVE.read_text(), 4)]
    guide = GUIDE.read_text().partition("## When it does not work\n")[2]
    return live + [Row(GUIDE, cells[0], cells[0]) for cells in _cells(guide, 3)]


def _cells(text: str, count: int) -> list[list[str]]:
    lines = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    return [cells for cells in lines if len(cells) == count and cells[0] not in {"assumption", "symptom"}]


class Documents:
    """Compares failures with the documents, and knows which rows have been compared."""

    def __init__(self) -> None:
        self._open = rows()

    def compare(self, answer: Answer, start: str, printed: str, code: int | None = None) -> None:
        """Note in a step's answer what was printed and whether the row that starts with `start` states that."""
        (row,) = [row for row in rows() if row.subject.startswith(start)]
        self._open = [each for each in self._open if each != row]
        answer.details.append(row.shown_in(printed))
        differences = row.differences(printed, code)
        answer.is_wrong = answer.is_wrong or bool(differences)
        ended = "" if code is None else f"exit code {code}; "
        page = row.document.relative_to(ROOT)
        answer.details.append(f"{ended}{'; '.join(differences) or 'as documented'} ({page}: {start})")

    @property
    def not_compared(self) -> list[Row]:
        """The rows whose failure was not provoked."""
        return list(self._open)
