"""Facts about `--debug-ranks`."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay_agent.settings.model import DEFAULT_RANKS, parse_ranks
from relay_agent.settings.ranks import ProcessIdentity
from relay_core.errors import UsageError


def selected(text: str, world: int = 8) -> list[int]:
    selection = parse_ranks(text)
    return [rank for rank in range(world) if selection.includes(ProcessIdentity(rank=rank, world_size=world))]


@pytest.mark.parametrize(
    ("text", "ranks", "canonical"),
    [
        (DEFAULT_RANKS, [0], "0"),
        ("3", [3], "3"),
        ("0,3-5", [0, 3, 4, 5], "0,3-5"),
        (" 5 , 3 - 4 ", [3, 4, 5], "3-5"),
        ("1,1,2", [1, 2], "1-2"),
        ("0-9,4", [0, 1, 2, 3, 4, 5, 6, 7], "0-9"),
        ("2-2", [2], "2"),
        ("99", [], "99"),
        ("all", [0, 1, 2, 3, 4, 5, 6, 7], "all"),
        ("ALL", [0, 1, 2, 3, 4, 5, 6, 7], "all"),
        ("master", [0], "0"),
        ("none", [], "none"),
    ],
)
def test_selection(text, ranks, canonical):
    """A text selects these ranks, and there is one way to write each selection."""
    assert ranks == selected(text)
    assert canonical == str(parse_ranks(text))


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        ",",
        "0,",
        "-1",
        "1-",
        "-",
        "5-3",
        "1.5",
        "+1",
        "1e3",
        "last",
        "0 1",
        "0;1",
        "all,1",
        "\u0663",
        "1" * 5000,
    ],
)
def test_bad_text(text):
    """What names no ranks is an error with a hint."""
    with pytest.raises(UsageError, match="invalid list of ranks") as caught:
        parse_ranks(text)
    assert caught.value.hint.startswith("use ")


def test_a_process_on_its_own_is_selected():
    """The default stops a job that nobody distributed."""
    assert parse_ranks().includes(ProcessIdentity())


@given(st.sets(st.integers(0, 30)))
def test_canonical_text(ranks):
    """A selection survives being written and read, and is that of the ranks that went in."""
    selection = parse_ranks(",".join(map(str, ranks)) or "none")
    assert selection == parse_ranks(str(selection))
    assert sorted(ranks) == selected(str(selection), world=31)


@given(st.text(max_size=12))
def test_any_text(text):
    """Any text is a selection or a usage error."""
    try:
        selection = parse_ranks(text)
    except UsageError:
        return
    assert selection == parse_ranks(str(selection))
