"""Facts about the columns that a terminal of a given width shows."""

from hypothesis import given
from hypothesis import strategies as st

from relay_client.ui.target_table import COLUMNS, GAP, column_widths, columns_to_show

CELLS = st.tuples(*(st.text("x", max_size=90 if name in {"node", "state", "held by"} else 8) for name in COLUMNS))


@given(st.lists(CELLS, min_size=1, max_size=4), st.integers(12, 250))
def test_any_row_fits_any_terminal(lines: list[tuple[str, ...]], width: int) -> None:
    """The columns and the gaps between them are never wider than the terminal, and the rank is never cut."""
    found = column_widths(COLUMNS, [(line[0], line[1][:4], *line[2:]) for line in lines], width)
    assert sum(found.values()) + GAP * (len(found) - 1) <= width
    assert 4 == found[COLUMNS.index("rank")]
    assert COLUMNS.index("state") in found


def test_space_that_is_left_goes_to_the_state() -> None:
    """A state that was cut takes the space that the other columns leave."""
    row = ("node-1", "2", "5680", "123456", "train.py", "s" * 60, "10 min", "", "", "", "", "bob@laptop, 4 min")
    found = column_widths(COLUMNS, [row], 100)
    assert 100 == sum(found.values()) + GAP * (len(found) - 1)
    assert 35 == found[COLUMNS.index("state")]


def test_an_empty_column_is_omitted_first() -> None:
    """If nobody holds a rank, a narrow terminal shows no column for that."""
    row = ("node-1", "2", "5680", "123456", "train.py", "s" * 24, "10 min", "", "", "", "", "")
    shown = [COLUMNS[column] for column in column_widths(COLUMNS, [row], 76)]
    assert ["node", "rank", "port", "pid", "script", "state", "since"] == shown


def test_numbers_of_a_monitor() -> None:
    """Their columns exist if a row has a number, and are the first ones that a narrow terminal omits."""
    row = (
        "node-1",
        "2",
        "5680",
        "123456",
        "train.py",
        "running",
        "10 min",
        " 1.2",
        "3.1G",
        "0  9G",
        " 87%  31G",
        "bob",
    )
    assert len(COLUMNS) == len(column_widths(COLUMNS, [row], 200))
    omitted = [
        set(COLUMNS) - {COLUMNS[at] for at in column_widths(COLUMNS, [row], width)} for width in (91, 80, 73, 67)
    ]
    assert [{"node gpu"}, {"node gpu", "gpu"}, {"node gpu", "gpu", "mem"}, {"node gpu", "gpu", "mem", "cpu"}] == omitted
    without = (*row[:7], "", "", "", "", "bob")
    assert {"cpu", "mem", "gpu", "node gpu"} == set(COLUMNS) - {
        COLUMNS[at] for at in columns_to_show(COLUMNS, [without])
    }
