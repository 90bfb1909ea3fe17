"""Facts about the reference pages: they follow from the code, and nothing that users can set is missing."""

import argparse
import ast
import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from relay_agent.cli import make_parser as agent_parser
from relay_agent.settings.arguments import add_debug_arguments
from relay_agent.settings.environment import ACCESS_VARIABLES
from relay_client.cli import make_parser as client_parser
from relay_server.cli import make_parser as server_parser

ROOT = Path(__file__).parent.parent.parent
DOCUMENTS = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
WORDS = {word for page in DOCUMENTS for word in re.findall(r"--[a-z][a-z-]*|[A-Z][A-Z_]+", page.read_text())}
VARIABLE = re.compile(r"(?:AZ)?RELAY_[A-Z]+(?:_[A-Z]+)*\b")


def test_the_pages_are_current():
    """What `python .ci/reference.py` would write is what is there."""
    spec = importlib.util.spec_from_file_location("reference", ROOT / ".ci" / "reference.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert [] == module.stale_pages()


def test_hidden_spellings():
    """The page about commands has each option with its help, and no spelling that the help hides."""
    page = (ROOT / "docs" / "reference" / "commands.md").read_text()
    (section,) = re.findall(r"## relay-client\n.*?(?=\n## )", page, re.DOTALL)
    rows = [row for row in section.splitlines() if "--port" in row.split("|", 2)[:2][-1]]
    assert ["| `--ports LIST` | local ports, such as 5678-5680,5690 (default: 5678) |"] == rows
    assert argparse.SUPPRESS not in page


def variables_in(path: Path) -> Iterator[str]:
    """Yield the names of variables in a module's strings, except for names of the module's own constants."""
    text = path.read_text()
    if not VARIABLE.search(text):
        return  # parsing takes milliseconds, and each worker imports this module
    tree = ast.parse(text)
    constants = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from set(VARIABLE.findall(node.value)) - constants


def variables() -> set[str]:
    found = {
        name
        for package in ("relay_core", "relay_agent", "relay_client", "relay_server")
        for path in (ROOT / package).rglob("*.py")
        for name in variables_in(path)
    }
    return found | set(ACCESS_VARIABLES.values())


def options() -> dict[str, str]:
    job = argparse.ArgumentParser(prog="a job")
    add_debug_arguments(job)
    parsers = [agent_parser(), client_parser(), server_parser(), job]
    return {option: parser.prog for parser in parsers for option in options_of(parser)}


def options_of(parser: argparse.ArgumentParser) -> Iterator[str]:
    for action in parser._actions:
        yield from (option for option in action.option_strings if option.startswith("--"))
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from options_of(command)


@pytest.mark.parametrize("name", sorted(variables()))
def test_every_variable_is_documented(name: str):
    """A variable that the code reads or sets is on some page."""
    assert name in WORDS


@pytest.mark.parametrize("option", sorted(set(options()) - {"--help"}))
def test_every_option_is_documented(option: str):
    """An option of a command, or an argument of a job, is on some page."""
    assert option in WORDS


def test_the_search_finds_what_there_is():
    """The lists are not empty for want of a search that works."""
    assert {"RELAY_KEEP", "RELAY_DEBUG_HC", "RELAY_RANK", "AZRELAY_CONNECTION_NAME"} <= variables()
    assert {"--is-debug", "--wait", "--log-format", "--no-listen", "--tunnel-key-secret"} <= {*options()}
    assert "RELAY_SCOPE" not in variables()
