"""Facts about the help of the programs."""

import argparse
from collections.abc import Iterator

import pytest

from relay_agent.cli import make_parser as agent_parser
from relay_client.cli import make_parser as client_parser
from relay_core.access_settings import ACCESS_OPTIONS
from relay_core.errors import UsageError
from relay_server.cli import make_parser as server_parser

LINES = 50
"""Lines of a screen; `relay-agent run` has the longest help, because it has all settings of a debug run."""


def commands(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            yield from action.choices.values()


def run(parser: argparse.ArgumentParser, *argv: str) -> None:
    arguments = parser.parse_args(argv)
    assert 0 == arguments.command(arguments)


@pytest.mark.parametrize(
    "command",
    [each for make in (agent_parser, client_parser, server_parser) for each in (make(), *commands(make()))],
    ids=lambda command: command.prog,
)
def test_the_help_of_a_command_fits_a_screen(command: argparse.ArgumentParser, monkeypatch: pytest.MonkeyPatch) -> None:
    """The help of each program and of each command has at most 50 lines of 80 characters."""
    monkeypatch.setenv("COLUMNS", "80")
    assert len(command.format_help().splitlines()) <= LINES


@pytest.mark.parametrize("make", [agent_parser, client_parser])
def test_one_page_lists_the_options_for_credentials(make, capfd: pytest.CaptureFixture[str]) -> None:
    """`help credentials` lists all of these options; a command's help has the most common one and names that page."""
    run(make(), "help", "credentials")
    listed = capfd.readouterr().out
    assert [] == [option.option for option in ACCESS_OPTIONS if f"\n  {option.option} " not in listed]
    run(make(), "help", "doctor")
    shown = capfd.readouterr().out
    assert "--hc NAME" in shown
    assert "--tunnel-key-file" not in shown
    assert "help credentials' to list the other credential options" in shown


def test_one_page_lists_the_options_of_forwarding(capfd: pytest.CaptureFixture[str]) -> None:
    """`help forwarding` lists all of these options; the help of the program lists those that most users need."""
    run(client_parser(), "help", "forwarding")
    listed = capfd.readouterr().out
    run(client_parser(), "help")
    shown = capfd.readouterr().out
    assert ["--ports", "--reuse"] == [option for option in ("--ports", "--reuse") if f"  {option} " in listed]
    assert ["--ports"] == [option for option in ("--ports", "--reuse") if f"  {option} " in shown]
    assert "help forwarding' to list all options" in " ".join(shown.split())


def test_the_help_command_shows_the_help_of_a_command(capfd: pytest.CaptureFixture[str]) -> None:
    """`help COMMAND` prints what `COMMAND --help` does, and `help` what `--help` does; another word is an error."""
    run(client_parser(), "help", "stacks")
    assert capfd.readouterr().out.startswith("usage: relay-client stacks ")
    run(client_parser(), "help")
    assert capfd.readouterr().out.startswith("usage: relay-client [options]")
    with pytest.raises(UsageError, match="no such command: 'stak'. hint: did you mean 'stacks'"):
        run(client_parser(), "help", "stak")
