"""Facts about `--debug-ranks`."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay_agent.settings.model import DebugSettings, parse_ranks
from relay_agent.settings.ranks import ProcessIdentity
from relay_core.errors import UsageError


def selected(text: str, world: int = 8) -> list[int]:
    selection = parse_ranks(text)
    return [rank for rank in range(world) if selection.includes(ProcessIdentity(rank=rank, world_size=world))]


@pytest.mark.parametrize(
    ("text", "ranks"),
    [
        ("0", [0]),
        ("3", [3]),
        ("0,3-5", [0, 3, 4, 5]),
        (" 5 , 3 - 4 ", [3, 4, 5]),
        ("1,1,2", [1, 2]),
        ("0-9,4", [0, 1, 2, 3, 4, 5, 6, 7]),
        ("2-2", [2]),
        ("99", []),
        ("0-999999999", [0, 1, 2, 3, 4, 5, 6, 7]),
        ("all", [0, 1, 2, 3, 4, 5, 6, 7]),
        ("ALL", [0, 1, 2, 3, 4, 5, 6, 7]),
        ("master", [0]),
        ("none", []),
    ],
)
def test_selection(text, ranks):
    """A text selects these ranks."""
    assert ranks == selected(text)


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
    assert DebugSettings().ranks.includes(ProcessIdentity())


@given(st.sets(st.integers(0, 30)))
def test_the_ranks_in_a_list(ranks):
    """A list selects the ranks that are in it."""
    assert sorted(ranks) == selected(",".join(map(str, ranks)) or "none", world=31)


@given(st.text(max_size=12))
def test_any_text(text):
    """Any text is a selection or a usage error."""
    with contextlib.suppress(UsageError):
        parse_ranks(text)
