"""Facts about the table of values, and their JSON."""

from relay_client.compare.render import as_objects, show_values
from relay_client.compare.search import Difference
from relay_core.agent_api.evaluation import Value
from relay_core.agent_api.members import Member


def value(text: str, *ranks: int, **fields: object) -> Value:
    return Value(tuple(Member(5678 + rank, rank) for rank in ranks), text, **fields)


def test_table():
    """One line for each group, then where the expression was evaluated."""
    groups = [
        value("", 2, error="no answer within 6 s", is_silent=True),
        value("nan", 5, place="step train.py:41"),
        value("0.312", 0, 1, 3, 4, place="__main__"),
    ]
    assert (
        "rank 2         no value: no answer within 6 s\n"
        "rank 5         nan\n"
        "ranks 0-1,3-4  0.312\n"
        "\n"
        "evaluated in step train.py:41: rank 5\n"
        "evaluated in __main__: ranks 0-1,3-4" == show_values(groups)
    )


def test_comparison():
    """A difference is a sentence, with its name, shape, element and both values."""
    odd, usual = value("", 5, digest="aa", leaves=9), value("", 0, 1, digest="bb", leaves=9)
    difference = Difference("fc.weight", "[64, 64] float32", 1234, "0.5", "0.25")
    first, second, *_ = show_values([odd, usual], {odd: difference}).splitlines()
    assert "rank 5     differs first at 'fc.weight' [64, 64] float32, element 1,234: 0.5, others 0.25" == first
    assert "ranks 0-1  the others, checksum bb (9 tensors and values)" == second


def test_all_equal():
    """Equal values are one line."""
    assert "ranks 0-1  equal, checksum bb (one value)" in show_values([value("", 0, 1, digest="bb", leaves=1)], {})


def test_json():
    """The objects have ranks, ports, place and value, and the difference if there is one."""
    odd = value("", 5, digest="aa", leaves=9, place="__main__")
    expected = {
        "ranks": [5],
        "ports": [5683],
        "place": "__main__",
        "text": "",
        "error": "",
        "silent": False,
        "digest": "aa",
        "leaves": 9,
        "difference": {
            "leaf": "w",
            "description": "[2]",
            "element": 1,
            "value": "3",
            "others": "4",
            "note": "",
        },
    }
    assert [expected] == as_objects([odd], {odd: Difference("w", "[2]", 1, "3", "4")})
