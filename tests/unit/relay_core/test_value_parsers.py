"""Facts about ports, flags and durations as text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay_agent.inject._relay_debug_programs import is_off
from relay_core.errors import UsageError
from relay_core.value_parsers import MAX_PORT, closest, named, parse_duration, parse_flag, parse_port, read_flag


@pytest.mark.parametrize(("text", "port"), [("1", 1), (" 5678 ", 5678), ("65535", MAX_PORT), ("00080", 80)])
def test_ports(text: str, port: int) -> None:
    """A port is a decimal number from 1 to 65535."""
    assert port == parse_port(text)


@pytest.mark.parametrize("text", ["", "0", "65536", "-1", "+1", "1_0", "1e3", "5678.0", "five", "\u0663", "1" * 5000])
def test_invalid_ports(text: str) -> None:
    """Everything else is refused with the text in the sentence, which is shortened as in every error."""
    with pytest.raises(UsageError) as caught:
        parse_port(text)
    assert UsageError(f"invalid port: '{text}'").sentence == caught.value.sentence
    assert "use a number from 1 to 65535, such as 5678" == caught.value.hint


@pytest.mark.parametrize("text", ["true", " TRUE ", "1", "Yes", "on"])
def test_yes(text: str) -> None:
    """Four words mean yes, in any case."""
    assert parse_flag(text) is True


@pytest.mark.parametrize("text", ["false", "False", "0", "no", "off", "none", "", " "])
def test_no(text: str) -> None:
    """What pipelines and shells write for no means no, and so does nothing at all."""
    assert parse_flag(text) is False


def test_neither_yes_nor_no() -> None:
    """Another word is refused."""
    with pytest.raises(UsageError, match="invalid flag: 'maybe'. hint: use true or false"):
        parse_flag("maybe")


@given(st.sampled_from(["", "0", "false", "no", "off", "none", "1", "true", "on", "OFF", " no ", "wait"]) | st.text())
def test_processes_of_a_job_read_off_the_same_way(text: str) -> None:
    """`sitecustomize` cannot import this package in every Python; its own list of words for "off" is the same."""
    assert is_off(text) == (read_flag(text) is False)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("90s", 90), ("30m", 1800), ("1.5h", 5400), ("0", 0), (" 10m ", 600), ("2.5", 2.5)],
)
def test_durations(text: str, seconds: float) -> None:
    """A duration is in seconds, or has a unit."""
    assert seconds == parse_duration(text)


@pytest.mark.parametrize("text", ["", "soon", "-1", "nan", "inf", "1e308h", "m", "1d", "10 min", "1h30m"])
def test_invalid_durations(text: str) -> None:
    """What is not finite, negative or not a number is refused."""
    with pytest.raises(UsageError) as caught:
        parse_duration(text)
    assert f"invalid duration: '{text}'" == caught.value.sentence


@given(st.text(max_size=12))
def test_any_text_is_a_duration_or_a_usage_error(text: str) -> None:
    """No text makes parsing fail in another way, and durations are always finite."""
    try:
        seconds = parse_duration(text)
    except UsageError:
        return
    assert 0 <= seconds < float("inf")


def test_an_error_names_where_the_text_came_from() -> None:
    """The option or variable stands in front of the sentence, and the hint stays."""
    with pytest.raises(UsageError) as caught, named("--port"):
        parse_port("x")
    assert ("--port: invalid port: 'x'", "use a number from 1 to 65535, such as 5678") == (
        caught.value.sentence,
        caught.value.hint,
    )


@pytest.mark.parametrize(("word", "known"), [("tweak", "tweaks"), ("port", "ports"), ("ports", "ports"), ("no", None)])
def test_misspelt_words(word: str, known: str | None) -> None:
    """A misspelt word has a closest known one; another word has none."""
    assert known == closest(word, ["values", "tweaks", "ports"])
