from __future__ import annotations

import argparse

import pytest

from relay_agent import add_debug_arguments
from relay_agent.step_arguments import StepArguments, parse_step_arguments
from relay_core.errors import UsageError


def parse(*argv: str) -> StepArguments:
    return parse_step_arguments(argv)


@pytest.mark.parametrize("text", ["true", "True", "TRUE", "1", "yes", "on", " true "])
def test_true_texts(text):
    """Pipelines spell true in several ways, and each of them makes a debug run."""
    assert parse("--is-debug", text).is_debug is True


@pytest.mark.parametrize("text", ["False", "false", "0", "", "none", "None", "no", "off"])
def test_false_texts(text):
    """`--is-debug False` arrives as text and is false."""
    assert parse("--is-debug", text).is_debug is False


def test_bare_flag():
    """`--is-debug` without a value is true, also in front of another option."""
    assert parse("--is-debug").is_debug is True
    assert parse("--is-debug", "--epochs", "3").is_debug is True


def test_absent_flag():
    """A run without any of the arguments is no debug run and has the defaults."""
    assert parse("--epochs", "3") == StepArguments()
    assert StepArguments().port == 5678
    assert StepArguments().wait == 600


def test_unreadable_flag():
    """Any other text is refused with the text in the sentence."""
    with pytest.raises(UsageError, match="--is-debug 'maybe' is neither true nor false"):
        parse("--is-debug", "maybe")


@pytest.mark.parametrize("spelled", ["separate", "equals"])
def test_all_arguments(spelled):
    """Both `--x y` and `--x=y` are read, among arguments of the job's own."""
    pairs = [
        ("--is-debug", "True"),
        ("--debug-relay-connection-name", "myhc"),
        ("--debug-port", "5680"),
        ("--debug-relay-connection-string-secret", "debugsecret"),
        ("--debug-wait", "2.5"),
    ]
    given = [word for pair in pairs for word in (pair if spelled == "separate" else ["=".join(pair)])]
    expected = StepArguments(True, "myhc", 5680, "debugsecret", 2.5)
    assert expected == parse("data.csv", "--lr", "-0.1", *given, "--", "--verbose")


def test_pipeline_placeholders():
    """The pipelines' default "none" for a name means that there is none."""
    found = parse("--is-debug", "1", "--debug-relay-connection-name", "none")
    assert found.connection_name is None


@pytest.mark.parametrize("port", ["0", "65536", "-1", "five", "5678.0", "", "1e3", "\u0663"])
def test_bad_port(port):
    """A port outside 1-65535 is refused by name, without ending the process."""
    with pytest.raises(UsageError, match="--debug-port"):
        parse("--is-debug", f"--debug-port={port}")


@pytest.mark.parametrize("wait", ["-1", "nan", "inf", "soon", ""])
def test_bad_wait(wait):
    """A wait that is not a finite number of seconds is refused."""
    with pytest.raises(UsageError, match="--debug-wait"):
        parse("--is-debug", f"--debug-wait={wait}")


def test_bad_values_are_ignored_in_an_ordinary_run():
    """Only a debug run looks at the other arguments."""
    assert parse("--is-debug", "false", "--debug-port", "five") == StepArguments()


def test_abbreviations_belong_to_the_job():
    """`--is-d` and `--debug` are the job's own arguments: ours are never abbreviated."""
    assert parse("--is-d", "true", "--debug", "--debug-p", "1") == StepArguments()


def test_default_is_the_command_line(monkeypatch):
    """Without an argument, `sys.argv` is read and left as it was."""
    argv = ["train.py", "--is-debug", "true", "--epochs", "3"]
    monkeypatch.setattr("sys.argv", argv)
    assert parse_step_arguments().is_debug is True
    assert argv == ["train.py", "--is-debug", "true", "--epochs", "3"]


def test_add_debug_arguments():
    """A strict parser accepts the arguments, and `is_debug` is a bool there."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int)
    add_debug_arguments(parser)
    found = parser.parse_args(["--is-debug", "False", "--epochs", "3", "--debug-port", "5679"])
    assert found.is_debug is False
    assert parser.parse_args(["--is-debug"]).is_debug is True
    assert parser.parse_args([]).is_debug is False
    assert "remote debugging" in parser.format_help()
