"""Facts about the choice of runs."""

import pytest

from relay_client.tensorboard.selection import DEFAULT_FILTERS, Selection, folder_name, parse_selection
from relay_core.errors import UsageError


def test_all_runs() -> None:
    """By default, running jobs and completed runs are chosen, as in InnerEye."""
    selection = parse_selection("all", None, DEFAULT_FILTERS)
    assert Selection(statuses=frozenset({"RUNNING", "FINISHED"})) == selection
    assert (True, True, frozenset({"FINISHED"})) == (selection.includes("x"), selection.has_running, selection.ended)


def test_some_runs() -> None:
    """Ids choose runs, and filters their states."""
    selection = parse_selection("a, b", None, "canceled,Failed")
    assert Selection(frozenset("ab"), statuses=frozenset({"KILLED", "FAILED"})) == selection
    assert (True, False, False) == (selection.includes("a"), selection.includes("c"), selection.has_running)


def test_an_experiment() -> None:
    """An experiment needs no list of runs."""
    assert "circle" == parse_selection(None, "circle", "Running").experiment


@pytest.mark.parametrize(
    ("runs", "experiment", "filters", "sentence"),
    [
        (",", None, "Running", "--runs: invalid list of runs: ','"),
        ("all,a", None, "Running", "--runs: invalid list of runs"),
        ("a", "circle", "Running", "--runs and --experiment cannot be combined"),
        ("all", None, "Running,Paused", "--filters: invalid state: 'paused'"),
        ("all", None, "", "--filters: invalid state: ''"),
    ],
)
def test_mistakes(runs: str, experiment: str | None, filters: str, sentence: str) -> None:
    """Each mistake is named."""
    with pytest.raises(UsageError, match=sentence):
        parse_selection(runs, experiment, filters)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        *[("pear_1", "pear_1"), ("../etc", "_etc"), ("..", "run"), ("a b:c", "a_b_c"), ("", "run")],
        ("\N{HANGUL SYLLABLE GA}" * 100, "\N{HANGUL SYLLABLE GA}" * 33),  # a name may have 255 bytes
    ],
)
def test_folders(text: str, expected: str) -> None:
    """The id of a run becomes a folder inside of the directory."""
    assert expected == folder_name(text)
