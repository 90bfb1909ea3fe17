"""Facts about how benchmarks report what they measured."""

import json

import pytest

from tests.bench.report import Limit, Row, print_rows, table, to_json

SPEED = Row("speed", "loop", "ns", {"plain": 40.0, "armed": 41.0, "debugpy": 130.0, "gone": "lost"})


@pytest.mark.parametrize(
    ("name", "cell"),
    [("plain", "40"), ("armed", "41 (x1.02)"), ("debugpy", "130 (x3.25)"), ("gone", "lost"), ("unknown", "")],
)
def test_a_cell_compares_with_the_first_peer(name, cell):
    """A figure is followed by its ratio; the first one stands alone, and a word stays a word."""
    assert cell == SPEED.cell(name)


@pytest.mark.parametrize(
    ("value", "cell"), [(0.1, "0.1 (x0.01)"), (9.0, "9 (x0.90)"), (123.4, "123 (x12)"), (1e4, "10000 (x1000)")]
)
def test_ratios_show_per_cents_near_one(value, cell):
    """Two decimals where a few per cent matter, and no false precision elsewhere."""
    assert cell == Row("f", "w", "", {"first": 10.0, "second": value}).cell("second")


@pytest.mark.parametrize(
    ("limit", "met"), [(Limit(1.05, of="ratio"), True), (Limit(1.02, of="ratio"), False), (Limit(41), True)]
)
def test_limits_are_judged(limit, met):
    """A limit is for the ratio or for the figure itself, and what equals it has met it."""
    row = Row("f", "w", "ns", SPEED.values, limits={"armed": limit, "gone": limit, "unknown": limit})
    assert [met, None, None, None] == [row.met(name) for name in ("armed", "gone", "unknown", "plain")]


def test_verdicts():
    """One line for each limit; who misses it is shown with the figure."""
    ratio, value = Limit(1.05, of="ratio"), Limit(100)
    row = Row("f", "loop", "ns", SPEED.values, limits={"armed": ratio, "debugpy": ratio, "plain": value, "gone": value})
    assert [
        "loop, at most x1.05: armed: met; debugpy: MISSED, 130 (x3.25)",
        "loop, at most 100 ns: plain: met",
    ] == row.verdicts()


def test_table_has_peers_side_by_side():
    """A line for each row; a peer that a row does not have leaves its cell empty."""
    rows = [Row("f", "one", "s", {"a": 1.0, "b": 2.0}), Row("f", "two", "s", {"a": 1.0})]
    assert [["f", "unit", "a", "b"], ["one", "s", "1", "2 (x2.00)"], ["two", "s", "1", ""]] == table(rows)


def test_wide_table_has_peers_below_each_other():
    """What is wider than a screen lies on its side."""
    rows = [Row("f", "one", "s", {f"{number} of many peers": 1.0 for number in range(10)}, profile="far")]
    heads, unit, first, *_ = table(rows)
    assert [["f, far", "one"], ["unit", "s"], ["0 of many peers", "1"]] == [heads, unit, first]


def test_everything_is_printed(capfd):
    """Tables, verdicts, and what could not be measured."""
    row = Row("f", "loop", "ns", {"plain": 40.0, "armed": 60.0}, limits={"armed": Limit(1.05, of="ratio")})
    print_rows([row], {"torch": "missing"})
    lines = capfd.readouterr().out.splitlines()
    assert "loop  ns       40  60 (x1.50)" in lines
    assert "loop, at most x1.05: armed: MISSED, 60 (x1.50)" in lines
    assert "not measured: torch: missing" in lines


def test_json_has_limits():
    """A program can see what was promised and whether it was kept."""
    row = Row("f", "loop", "ns", SPEED.values, limits={"armed": Limit(1.05, of="ratio")})
    figures = json.loads(to_json([row, SPEED], {}))["figures"]
    assert [{"armed": {"most": 1.05, "of": "ratio", "met": True}}, None] == [each.get("limits") for each in figures]
