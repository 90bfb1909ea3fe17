"""The debugging arguments of a job's command line.

    --is-debug [FLAG]                             debug this run
    --debug-relay-connection-name NAME            hybrid connection
    --debug-relay-connection-string-secret NAME   Key Vault secret that holds the connection string
    --debug-port PORT ...                         the rows of `relay_agent.settings.table`

Pipelines pass all values as text, so "False", "none" and "" are valid values. The job parses the same command line, so
nothing in this module exits, prints or removes arguments.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from relay_agent.settings.model import DebugSettings
from relay_agent.settings.table import SETTINGS, read_settings
from relay_core.access_settings import AccessSettings
from relay_core.errors import UsageError
from relay_core.value_parsers import closest, named, parse_flag, read_flag

_PREFIX = "--debug-"
_SWITCH = "--is-debug"
_HC = "--debug-relay-connection-name"
_SECRET = "--debug-relay-connection-string-secret"  # noqa: S105 - the name of an argument
_NAMES = frozenset({_HC, _SECRET, *(setting.option for setting in SETTINGS)})


def add_debug_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the debugging arguments to a job's parser, which would otherwise reject them as unknown.

    The job can ignore their values: `start_remote_debugging_from_args` parses the command line separately. In the
    parser's result, flags are bool and the others are str.
    """
    _add_arguments(parser, flag=lambda text: read_flag(text) is True)


def parse_step_arguments(argv: Sequence[str] | None = None, *, ignore_debug_flag: bool = False) -> DebugSettings | None:
    """Return the settings in `argv` (default: `sys.argv[1:]`), ignoring other arguments; None if debugging is off.

    Without `--is-debug`, the other values are not parsed, so invalid ones cause no error; with `ignore_debug_flag`,
    debugging is always on.

    Raises:
        UsageError: a value is invalid.
    """
    parser = _QuietParser(add_help=False, allow_abbrev=False)
    _add_arguments(parser, flag=str)
    found = vars(parser.parse_known_args(sys.argv[1:] if argv is None else list(argv))[0])
    with named(_SWITCH):
        if not ignore_debug_flag and not parse_flag(found["is_debug"]):
            return None
    access = AccessSettings(
        hc=_name(found["debug_relay_connection_name"]),
        connection_string_secret=_name(found["debug_relay_connection_string_secret"]),
    )
    texts = {setting.field: found[setting.destination] for setting in SETTINGS}
    return DebugSettings(access, **read_settings(texts, lambda setting: setting.option))


def misspelt_arguments(argv: Sequence[str] | None = None) -> dict[str, str]:
    """Return the arguments in `argv` that closely resemble a debugging argument, each with that argument.

    A job may have arguments of its own that begin in the same way, so these are not errors.
    """
    known = {name.removeprefix(_PREFIX): name for name in _NAMES}
    found = {}
    for text in sys.argv[1:] if argv is None else argv:
        argument = text.partition("=")[0]
        name = argument.replace("_", "-")
        if argument not in _NAMES and name.startswith(_PREFIX) and (similar := closest(name[len(_PREFIX) :], known)):
            found[argument] = known[similar]
    return found


def misspelt_switch(argv: Sequence[str] | None = None) -> str:
    """Return the argument that was probably meant as `--is-debug`; "" if there is none.

    There is none if `argv` has `--is-debug`; one with the value false has no effect either way. If `argv` has no other
    debugging argument, only a typing error counts: `--is_debug` may be the job's own.
    """
    given = [text.partition("=") for text in (sys.argv[1:] if argv is None else argv)]
    names = [name for name, *_ in given]
    if _SWITCH in names:
        return ""
    is_meant = _has_typing_error if _NAMES.isdisjoint(names) else _is_similar
    for (name, is_set, value), following in zip(given, [*names, "true"][1:], strict=True):
        if name.startswith("--is") and is_meant(name.replace("_", "-")):
            return "" if read_flag(value if is_set else following) is False else name
    return ""


def _is_similar(name: str) -> bool:
    return closest(name[2:], [_SWITCH[2:]]) is not None


def _has_typing_error(name: str) -> bool:
    """Whether a name is the switch with one letter too many, missing or wrong, or with two letters swapped.

    Jobs that are not debugged get here, so nothing is imported: `difflib` may be a file of the job.
    """
    same = len([*itertools.takewhile(lambda pair: pair[0] == pair[1], zip(name, _SWITCH, strict=False))])
    rest, expected = name[same:], _SWITCH[same:]
    letters = name.replace("-", "")
    differs = letters.isalpha() and letters != _SWITCH.replace("-", "")
    return differs and (
        rest == expected[1:] or rest[1:] in {expected, expected[1:]} or rest[1::-1] + rest[2:] == expected
    )


class JoinAction(argparse.Action):
    """Joins the values of a repeated option with commas."""

    def __call__(self, _parser: object, namespace: argparse.Namespace, values: Any, _option: object = None) -> None:
        """Add one value."""
        earlier = getattr(namespace, self.dest)
        setattr(namespace, self.dest, f"{earlier},{values}" if earlier else values)


class _QuietParser(argparse.ArgumentParser):
    """A parser that raises UsageError instead of printing the usage and exiting."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"invalid debugging arguments: {message}")


def _add_arguments(parser: argparse.ArgumentParser, *, flag: Callable[[str], object]) -> None:
    """Add the options; every value is optional text, so that argparse itself reports no errors."""
    group = parser.add_argument_group("remote debugging")

    def add(option: str, metavar: str, text: str, *, default: str = "", bare: object = "", **options: Any) -> None:
        shown = f"{text} (default: {default})" if default else text
        group.add_argument(option, nargs="?", const=bare, default=default, metavar=metavar, help=shown, **options)

    def add_flag(option: str, text: str) -> None:
        add(option, "FLAG", f"{text} (true if given without a value)", default="false", bare=flag("true"), type=flag)

    add_flag(_SWITCH, "debug this run")
    add(_HC, "NAME", "hybrid connection (default: the EntityPath in the connection string)")
    add(_SECRET, "NAME", "Key Vault secret that contains the connection string")
    for setting in SETTINGS:
        if setting.is_flag:
            add_flag(setting.option, setting.help)
        else:
            options = {"action": JoinAction} if setting.is_list else {}
            add(
                setting.option, setting.metavar, setting.help,
                default=setting.default, bare=setting.bare or "", **options,
            )  # fmt: skip


def _name(text: str) -> str | None:
    name = text.strip()
    return None if name.lower() in {"", "none"} else name
