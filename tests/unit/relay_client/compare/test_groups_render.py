"""Facts about the table of values, and their JSON."""

from relay_client.compare.groups import as_objects, hint_about_jobs, hint_for, odd_ones_first, show_values
from relay_core.agent_api.evaluation import Difference, Value
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


def test_places_of_equal_values():
    """Of one value in different places, the last lines have each place with its ranks, the rarest first."""
    places = ["__main__", "__main__", "step train.py:41", "__main__"]
    values = [value("7", rank, place=place) for rank, place in enumerate(places)]
    assert "ranks 0-3  7\n\nevaluated in step train.py:41: rank 2\nevaluated in __main__: ranks 0-1,3" == show_values(
        odd_ones_first(values), values=values
    )


def test_places_of_several_values():
    """The ranks with different values in one place are one list."""
    values = [value(str(rank), rank, place="step" if rank == 0 else "__main__") for rank in range(4)]
    assert "evaluated in __main__: ranks 1-3" == show_values(odd_ones_first(values), values=values).splitlines()[-1]


def test_lines():
    """A value of several lines is one line in the table, and keeps its lines in JSON."""
    found = [value("tensor([[1.],\n        [2.]])", 0, place="__main__")]
    assert "rank 0  tensor([[1.],\\n        [2.]])" == show_values(found).splitlines()[0]
    assert ["tensor([[1.],\n        [2.]])"] == [each["text"] for each in as_objects(found)]


def test_hint():
    """There is a hint for a name that a running program lacks, but not for one that a stopped rank lacks."""
    unknown = "NameError: name 'i' is not defined"
    hint = hint_for([value("", 0, error=unknown, place="__main__")])
    assert hint.startswith("'i' is neither a global variable of the program nor a variable of a function")
    some = [value("", 2, error=unknown, place="__main__"), value("7", 0, 1, place="__main__")]
    assert f"in rank 2, {hint}" == hint_for(some)
    assert "" == hint_for([value("", 0, error=unknown, place="step train.py:41"), value("7", 1, place="__main__")])


def test_hint_about_a_rank_that_has_not_started():
    """A rank that waits for a debugger at its start has no names yet; one that runs has the usual hint."""
    unknown = "NameError: name 'i' is not defined"
    groups = [value("", 0, error=unknown, place="__main__"), value("7", 1, place="__main__")]
    expected = "'i' does not exist yet in rank 0: not started, waiting for a debugger"
    assert expected == hint_for(groups, {5678})
    assert hint_for(groups) == hint_for(groups, {5679})


def test_several_jobs():
    """Ranks of several jobs have their ports in the table, and the hint names the option that chooses a job."""
    groups = [value("7", 0, place="__main__"), Value((Member(6000, 0),), "8", "__main__")]
    assert ["rank 0 (port 5678)  7", "rank 0 (port 6000)  8"] == show_values(groups).splitlines()[:2]
    hint = "several jobs are connected; choose one by the ports of its processes, as in --ports 5678"
    assert [hint, ""] == [hint_about_jobs(found) for found in (groups, groups[:1])]


def test_comparison():
    """A difference is a sentence, with its name, shape, element and both values."""
    odd, usual = value("", 5, digest="aa", leaves=9), value("", 0, 1, digest="bb", leaves=9)
    difference = Difference("fc.weight", "[64, 64] float32", 1234, "0.5", "0.25")
    first, second, *_ = show_values([odd, usual], {odd: difference}).splitlines()
    assert "rank 5     first differs at 'fc.weight' [64, 64] float32, element 1,234: 0.5 instead of 0.25" == first
    assert "ranks 0-1  reference value, checksum bb (9 tensors and values)" == second


def test_all_equal():
    """Equal values are one line."""
    assert "ranks 0-1  equal, checksum bb (one value)" in show_values([value("", 0, 1, digest="bb", leaves=1)], {})


def test_a_single_value():
    """A value that only one rank has is compared with no others."""
    assert "rank 0  the only value, checksum bb (one value)" in show_values([value("", 0, digest="bb", leaves=1)], {})


def test_sharded_tensors():
    """The number of sharded tensors is shown; a value that contains nothing else was not compared."""
    some, all_ = value("", 0, 1, digest="b", leaves=9, sharded=1), value("", 0, 1, digest="b", leaves=2, sharded=2)
    assert "equal, checksum b (8 tensors and values; 1 sharded tensor not compared)" in show_values([some], {})
    assert "not compared, because the ranks hold different parts (2 sharded tensors)" in show_values([all_], {})


def test_json():
    """The objects have ranks, ports, place and value, and the difference if there is one."""
    odd = value("", 5, digest="aa", leaves=9, sharded=1, place="__main__")
    expected = {
        "ranks": [5],
        "ports": [5683],
        "place": "__main__",
        "text": "",
        "error": "",
        "silent": False,
        "digest": "aa",
        "leaves": 9,
        "sharded": 1,
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
