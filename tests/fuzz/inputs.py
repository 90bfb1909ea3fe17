"""Inputs for the parsers: the corpus of a parser, and mutations of it."""

from __future__ import annotations

from pathlib import Path

from hypothesis import strategies as st

__all__ = ["CORPUS", "corpus_of", "mutations_of"]

CORPUS = Path(__file__).with_name("corpus")
"""A directory for each parser: valid input to start from, and whatever once broke it."""
MAX_EDITS = 12
WORDS = (b"\x00", b"\xff", b"\r\n\r\n", b"9" * 20, b"-1", b'"', b"[" * 200, b"\\u0000", b"\xed\xa0\x80", b"NaN")
"""What parsers stumble over, to be put anywhere."""


def corpus_of(parser: str) -> list[bytes]:
    """Return the inputs in a parser's directory, in order of their names."""
    return [path.read_bytes() for path in sorted((CORPUS / parser).iterdir())]


def mutations_of(corpus: list[bytes]) -> st.SearchStrategy[bytes]:
    """Return a strategy for inputs that resemble those of a corpus, or nothing at all."""
    place = st.floats(0, 1)
    new = st.one_of(st.sampled_from(WORDS), st.binary(max_size=8))
    edits = st.lists(st.tuples(place, place, new), max_size=MAX_EDITS)
    pairs = st.tuples(st.sampled_from(corpus), st.sampled_from(corpus), place)
    joined = pairs.map(lambda pair: pair[0][: int(len(pair[0]) * pair[2])] + pair[1][int(len(pair[1]) * pair[2]) :])
    return st.one_of(st.tuples(joined, edits).map(lambda drawn: _edited(*drawn)), st.binary(max_size=1024))


def _edited(data: bytes, edits: list[tuple[float, float, bytes]]) -> bytes:
    """Replace parts of the input, each given by where it starts, its share of eight bytes, and the new bytes."""
    for start, length, new in edits:
        at = int(len(data) * start)
        data = data[:at] + new + data[at + int(8 * length) :]
    return data
