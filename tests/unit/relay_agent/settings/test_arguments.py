from __future__ import annotations

import argparse

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay_agent import add_debug_arguments
from relay_agent.settings.arguments import misspelt_switch, parse_step_arguments
from relay_agent.settings.model import DebugSettings, parse_ranks
from relay_core.access_settings import AccessSettings
from relay_core.errors import UsageError
from tests.support.data.debug_settings import ALL_SET


def parse(*argv: str) -> DebugSettings | None:
    return parse_step_arguments(argv)


@pytest.mark.parametrize("text", ["true", "True", "TRUE", "1", "yes", "on", " true "])
def test_true_texts(text):
    """Pipelines spell true in several ways, and each of them makes a debug run."""
    assert parse("--is-debug", text) is not None


@pytest.mark.parametrize("text", ["False", "false", "0", "", "none", "None", "no", "off"])
def test_false_texts(text):
    """`--is-debug False` arrives as text and is false."""
    assert parse("--is-debug", text) is None


def test_bare_flag():
    """`--is-debug` without a value is true, also in front of another option."""
    assert parse("--is-debug") == DebugSettings()
    assert parse("--is-debug", "--epochs", "3") == DebugSettings()


def test_absent_flag():
    """A run without any of the arguments is an ordinary run."""
    assert parse("--epochs", "3") is None


def test_defaults():
    """By default rank 0 waits ten minutes for a debugger on port 5678, and then continues."""
    found = parse("--is-debug")
    assert found is not None
    assert (found.port, found.ranks, found.wait, found.abort_on_timeout) == (5678, parse_ranks("0"), 600, False)
    assert (found.on_crash, found.hold, found.timeouts, found.forwards, found.follow_children) == (
        False, 1800, None, (), False,
    )  # fmt: skip


def test_unreadable_flag():
    """Any other text is refused with the text in the sentence."""
    with pytest.raises(UsageError, match="--is-debug: invalid flag: 'maybe'"):
        parse("--is-debug", "maybe")


@pytest.mark.parametrize("spelled", ["separate", "equals"])
def test_all_arguments(spelled):
    """Both `--x y` and `--x=y` are read, among arguments of the job's own."""
    pairs = [
        ("--is-debug", "True"),
        ("--debug-relay-connection-name", "myhc"),
        ("--debug-port", "6000"),
        ("--debug-relay-connection-string-secret", "debugsecret"),
        ("--debug-wait", "2.5"),
        ("--debug-ranks", "0,3-5"),
        ("--debug-on-timeout", "abort"),
        ("--debug-on-crash", "true"),
        ("--debug-hold", "2h"),
        ("--debug-timeouts", "3600"),
        ("--debug-forward", "6006,8888"),
        ("--debug-follow-children", "yes"),
        ("--debug-values", "off"),
    ]
    given = [word for pair in pairs for word in (pair if spelled == "separate" else ["=".join(pair)])]
    expected = ALL_SET._replace(access=AccessSettings(hc="myhc", connection_string_secret="debugsecret"), wait=2.5)
    assert expected == parse("data.csv", "--lr", "-0.1", *given, "--", "--verbose")


def test_pipeline_placeholders():
    """The pipelines' default "none" for a name means that there is none."""
    found = parse("--is-debug", "1", "--debug-relay-connection-name", "none")
    assert found is not None
    assert found.access == AccessSettings()


@pytest.mark.parametrize("port", ["0", "65536", "-1", "five", "5678.0", "1e3", "\u0663"])
def test_bad_port(port):
    """A port outside 1-65535 is refused by name, without ending the process."""
    with pytest.raises(UsageError, match="--debug-port"):
        parse("--is-debug", f"--debug-port={port}")


@pytest.mark.parametrize("wait", ["-1", "nan", "inf", "soon", "1e308h"])
def test_bad_wait(wait):
    """A wait that is not a finite number of seconds is refused."""
    with pytest.raises(UsageError, match="--debug-wait"):
        parse("--is-debug", f"--debug-wait={wait}")


@pytest.mark.parametrize(
    ("argument", "sentence"),
    [
        ("--debug-ranks=3-1", "--debug-ranks: invalid list of ranks: '3-1' is in reverse order"),
        ("--debug-on-timeout=panic", "--debug-on-timeout: invalid action: 'panic'"),
        ("--debug-on-crash=maybe", "--debug-on-crash: invalid flag: 'maybe'"),
        ("--debug-hold=soon", "--debug-hold: invalid duration: 'soon'"),
        ("--debug-timeouts=-1", "--debug-timeouts"),
        ("--debug-forward=6006,http", "--debug-forward: invalid port: 'http'"),
    ],
)
def test_other_bad_values(argument, sentence):
    """Every value that makes no sense is refused with its option's name."""
    with pytest.raises(UsageError, match=sentence):
        parse("--is-debug", argument)


def test_bare_timeouts():
    """`--debug-timeouts` without a value raises the watchdogs to a day."""
    found = parse("--is-debug", "--debug-timeouts")
    assert found is not None
    assert found.timeouts == 86400


def test_repeated_forwards():
    """A repeated `--debug-forward` adds to the list, as in `relay-agent run`."""
    found = parse("--is-debug", "--debug-forward", "6006", "--debug-forward=8888,9999")
    assert found is not None
    assert found.forwards == (6006, 8888, 9999)


def test_bad_values_are_ignored_in_an_ordinary_run():
    """Only a debug run looks at the other arguments."""
    assert parse("--is-debug", "false", "--debug-port", "five") is None


def test_abbreviations_belong_to_the_job():
    """`--is-d` and `--debug` are the job's own arguments: ours are never abbreviated."""
    assert parse("--is-d", "true", "--debug", "--debug-p", "1") is None


def test_default_is_the_command_line(monkeypatch):
    """Without an argument, `sys.argv` is read and left as it was."""
    argv = ["train.py", "--is-debug", "true", "--epochs", "3"]
    monkeypatch.setattr("sys.argv", argv)
    assert parse_step_arguments() == DebugSettings()
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


ORDINARY = (
    "--batch-size --lr --epochs --seed --config --local-rank --local_rank --resume --output_dir --verbose -v --help",
    "--deepspeed --fp16 --gradient_accumulation_steps --do_train --model_name_or_path --gpus --num_workers --iters",
    "--is-train --is_training --is-test --is-main --is-master --is-causal --is-decoder --is-dev --is-dense",
    "--debug --no-debug --use-debug --in-debug --debug-mode --debugging --is- --is --iso --issue --isolate --i -- -",
    "--is_debug --isdebug --is-debugging --is-debugging-off --is-debugger --is-debug-mode --no-is-debug",
)
"""Options of training scripts, some of which resemble the switch."""


@given(st.lists(st.sampled_from(" ".join((*ORDINARY, "true 1 3e-4 data/")).split())), st.booleans())
def test_ordinary_options_are_no_misspelling(argv, takes_values):
    """Without another debugging argument, nothing is taken for `--is-debug`."""
    assert "" == misspelt_switch([f"{word}=true" for word in argv] if takes_values else argv)


@pytest.mark.parametrize("name", ["--is-debug2", "--is-debug-1"])
def test_a_number_is_no_typing_error(name: str) -> None:
    """An option of the job may differ from `--is-debug` by a number."""
    assert "" == misspelt_switch([name, "true"])


@given(st.integers(4, 9), st.sampled_from("abcdefgz"), st.sampled_from(["wrong", "more", "less", "swapped"]))
def test_typing_errors(place, letter, kind):
    """One letter of `--is-debug` that is wrong, too many or missing, or two swapped ones, are noticed among others."""
    before, after = "--is-debug"[:place], "--is-debug"[place:]
    ends = {"wrong": letter + after[1:], "more": letter + after, "less": after[1:], "swapped": after[1::-1] + after[2:]}
    name = before + ends[kind]
    is_own = name.replace("-", "") == "isdebug"
    assert ("" if is_own else name) == misspelt_switch(["--epochs", "3", name, "true"])
    assert "" == misspelt_switch([name, "false"])
