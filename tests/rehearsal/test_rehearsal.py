"""Facts about the rehearsal: it ends well, and it notices a program that does not do what the documents state."""

import sys

import pytest

from tests.rehearsal.documents import LIVE, Row
from tests.samples.kit import ROOT, environment, needs_sdk, running


@pytest.mark.e2e
@needs_sdk
async def test_everything_is_as_documented() -> None:
    """The guide leads to breakpoints and back, and each failure prints the sentence and code of its document."""
    async with running(sys.executable, "-m", "tests.rehearsal", cwd=ROOT, env=environment()) as rehearsal:
        assert 0 == await rehearsal.finish()
    assert rehearsal.output.endswith(", 0 not as documented\n")


@pytest.mark.parametrize(
    ("printed", "code", "found"),
    [
        ("relay-agent: error: refused (401): wrong key", 4, []),
        ("relay-agent: error: refused (403): wrong key", 4, ["`refused (401): ... key` was not printed"]),
        ("refused (401): wrong key", 6, ["the document states exit code 4, it was 6"]),
        ("refused (401): wrong key", 0, ["the document states exit code 4, it was 0"]),
    ],
)
def test_other_sentences_and_codes_are_noticed(printed: str, code: int, found: list[str]) -> None:
    """A sentence that was not printed is a difference, and so is another exit code; names of commands are ignored."""
    row = Row(LIVE, "keys", "`relay-client --verbose` logs `refused (401): ... key`, with exit code 4")
    assert found == row.differences(printed, code)
