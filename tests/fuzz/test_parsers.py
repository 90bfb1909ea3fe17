"""Facts about what strangers can send: only documented errors come out, in memory in proportion to the input."""

import tracemalloc

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz.inputs import CORPUS, corpus_of, mutations_of
from tests.fuzz.parsers import PARSERS

EXAMPLES = 150
"""For each parser; `make fuzz` runs for a time of any length."""
MEMORY_FACTOR, MEMORY_CONSTANT = 300, 2 << 20
"""Bytes for each byte of input, and in any case: a list in JSON takes 2 bytes of text and some 60 of memory."""


@pytest.mark.parametrize("name", PARSERS)
def test_corpus(name: str) -> None:
    """No input that was ever kept breaks a parser, nor does it take more memory than its size explains."""
    for data in corpus_of(name):
        PARSERS[name](data)  # imports and caches
        tracemalloc.start()
        try:
            PARSERS[name](data)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < MEMORY_FACTOR * len(data) + MEMORY_CONSTANT


@pytest.mark.parametrize("name", PARSERS)
def test_mutations(name: str) -> None:
    """Mutations of the corpus break no parser."""

    @settings(max_examples=EXAMPLES, database=None, suppress_health_check=list(HealthCheck))
    @given(st.data())
    def run(drawn: st.DataObject) -> None:
        PARSERS[name](drawn.draw(mutations))

    mutations = mutations_of(corpus_of(name))
    run()


def test_each_corpus_has_a_parser() -> None:
    """A parser that is renamed takes its corpus with it."""
    assert sorted(PARSERS) == sorted(path.name for path in CORPUS.iterdir())
