"""A stand-in for `az`: knows the options of the real one, and works on small_azure.py.

Like the real `az` it exits 2 for a command line it does not know, 3 or 1 when the thing asked for does not exist, 1 for
anything else that fails, and prints the words of the real one (azure-cli 2.91.0) on stderr.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import jmespath

from tests.support.azure.az_shim.failure import Failure, Options, failure
from tests.support.azure.az_shim.small_azure import COMMANDS, WARNINGS, is_subscription
from tests.support.azure.cloud.state import Refusal, State

TABLE_FILE = Path(__file__).parent / "az_args.json"
TABLE = json.loads(TABLE_FILE.read_text())["commands"]
LISTS = {"--rights", "--parameters", "--secret-permissions", "--tags", "--ids"}
SWITCHES = {"--only-show-errors", "--debug", "--verbose", "--help", "--no-wait", "--no-prompt", "--disabled", "--wait"}
ID_PARTS = {"--name", "--resource-group", "--namespace-name", "--hybrid-connection-name", "--vault-name"}
"""What the help does not mark as required because --ids or --id could replace it."""


class Answer(NamedTuple):
    """What a call of `az`, or of a script, ends with."""

    code: int
    out: str
    err: str


def answer(state: State, argv: list[str]) -> Answer:
    """Refuse or carry out one command."""
    warning = ""
    try:
        command, options = parse(argv)
        if command in WARNINGS and "--only-show-errors" not in options:
            warning = f"{WARNINGS[command] if command == 'login' else 'WARNING: ' + WARNINGS[command]}\n"
        return Answer(0, render(carry_out(state, command, options), options), warning)
    except Failure as failed:
        return Answer(failed.code, "", f"{warning}ERROR: {failed.text}\n")


def carry_out(state: State, command: str, options: Options) -> Any:
    if not state["signed_in"] and command != "login":
        raise Failure("Please run 'az login' to setup account.")
    name = options.get("--subscription", [state["subscription"]])[0]
    if not is_subscription(state, name):
        raise Failure(f"Subscription '{name}' not found. Check the spelling and casing and try again.")
    fail_if_asked_to(state, command)
    try:
        return COMMANDS[command](state, options)
    except Refusal as refusal:
        raise failure(refusal, command) from None


def fail_if_asked_to(state: State, command: str) -> None:
    """Fail if the test wants that; each fault is used up after its number of times."""
    for fault in state["faults"]:
        if fault["command"] == command and fault["times"] > 0:
            if fault["skip"] > 0:
                fault["skip"] -= 1
            else:
                fault["times"] -= 1
                raise Failure(fault["text"], fault["exit"])


# --- command line ----------------------------------------------------------------------------------------------------


def parse(argv: list[str]) -> tuple[str, Options]:
    """Split a command line into the command and its options by their first long name; refuse what `az` refuses."""
    words: list[str] = []
    while len(words) < len(argv) and not argv[len(words)].startswith("-"):
        words.append(argv[len(words)])
    command = next((" ".join(words[:n]) for n in range(len(words), 0, -1) if " ".join(words[:n]) in TABLE), None)
    if command is None:
        raise Failure(f"'{' '.join(words)}' is misspelled or not recognized by the system.", 2)
    rest = argv[len(command.split()) :]
    names = {alias: long_name(key) for key in TABLE[command] for alias in key.split()}
    options = parse_options(rest, names)
    check_required(command, options)
    return command, options


def long_name(key: str) -> str:
    return next(alias for alias in key.split() if alias.startswith("--"))


def parse_options(rest: list[str], names: dict[str, str]) -> Options:
    options: Options = {}
    while rest:
        word, *rest = rest
        name, _, inline = word.partition("=")
        if name not in names:
            raise Failure(f"unrecognized arguments: {word}", 2)
        name = names[name]
        if name in SWITCHES:
            values = []
        elif inline:
            values = [inline]
        else:
            count = next((i for i, text in enumerate(rest) if text.startswith("-")), len(rest))
            count = count if name in LISTS else min(count, 1)
            values, rest = rest[:count], rest[count:]
            if not values:
                raise Failure(f"argument {word}: expected one argument", 2)
        options[name] = values
    return options


def check_required(command: str, options: Options) -> None:
    for key, required in TABLE[command].items():
        name = long_name(key)
        implied = name in ID_PARTS and ({"--ids", "--id"} & TABLE[command].keys())
        if name == "--resource-group" and command.startswith(("keyvault", "role")):
            implied = False
        if name not in options and (required or implied):
            raise Failure(f"the following arguments are required: {key.replace(' ', '/')}", 2)


# --- output ----------------------------------------------------------------------------------------------------------


def render(value: Any, options: Options) -> str:
    style = options.get("--output", ["json"])[0]
    if "--query" in options:
        value = jmespath.search(options["--query"][0], value)
    if style == "none" or value is None:
        return ""
    if style == "tsv":
        rows = value if isinstance(value, list) else [value]
        return "".join("\t".join(map(_cell, row if isinstance(row, list) else [row])) + "\n" for row in rows)
    return json.dumps(value, indent=2, sort_keys=True) + "\n"


def _cell(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
