"""One text, three entrances: a job's arguments, its environment and the options of `relay-agent run` agree."""

import argparse
from collections.abc import Callable

import pytest

from relay_agent.cli.run import add_parser, job_environment
from relay_agent.settings.arguments import parse_step_arguments
from relay_agent.settings.environment import from_environment
from relay_agent.settings.model import DebugSettings, parse_ranks
from relay_agent.settings.table import MAX_TIMEOUTS, MIN_MONITOR, SETTINGS, Setting
from relay_core.access_settings import AccessSettings
from relay_core.errors import UsageError

Entrance = Callable[[Setting, str], "DebugSettings | None"]
ROWS = {setting.field: setting for setting in SETTINGS}
HC = AccessSettings(hc="myhc")


def field_of(setting: Setting) -> str:
    return setting.field


def by_argument(setting: Setting, text: str) -> DebugSettings | None:
    return parse_step_arguments(
        ["--is-debug", "true", "--debug-relay-connection-name", "myhc", f"{setting.option}={text}"]
    )


def by_separate_argument(setting: Setting, text: str) -> DebugSettings | None:
    return parse_step_arguments(["--is-debug", "--debug-relay-connection-name=myhc", setting.option, text])


def by_variable(setting: Setting, text: str) -> DebugSettings | None:
    return from_environment({"RELAY_DEBUG": "1", "RELAY_DEBUG_HC": "myhc", setting.variable: text})


def by_run(*words: str, environ: dict[str, str] | None = None) -> DebugSettings | None:
    parser = argparse.ArgumentParser()
    add_parser(parser.add_subparsers())
    arguments = parser.parse_args(["run", "--hc", "myhc", *words, "--", "true"])
    return from_environment(job_environment(arguments, environ or {}))


def by_run_option(setting: Setting, text: str) -> DebugSettings | None:
    return by_run(f"{setting.option}={text}")


def by_run_variable(setting: Setting, text: str) -> DebugSettings | None:
    return by_run(environ={setting.variable: text})


ENTRANCES = [by_argument, by_separate_argument, by_variable, by_run_option, by_run_variable]

VALUES = [
    # The texts that two parsers had read differently come first.
    ("timeouts", "1000h", {"timeouts": MAX_TIMEOUTS}),
    ("wait", "10m", {"wait": 600.0}),
    ("abort_on_timeout", "", {}),
    ("ranks", "", {}),
    ("port", "", {}),
    ("port", "6000", {"port": 6000}),
    ("port", " 6000 ", {"port": 6000}),
    ("ranks", "3,0-1", {"ranks": parse_ranks("3,0-1")}),
    ("ranks", "ALL", {"ranks": parse_ranks("all")}),
    ("ranks", "none", {"ranks": parse_ranks("none")}),
    ("wait", "0", {"wait": 0.0}),
    ("wait", "", {}),
    ("abort_on_timeout", "Abort", {"abort_on_timeout": True}),
    ("hold", "2h", {"hold": 7200.0}),
    ("hold", " ", {}),
    ("timeouts", "", {}),
    ("timeouts", "none", {}),
    ("timeouts", "held", {}),
    ("timeouts", "0", {"timeouts": 0.0}),
    ("timeouts", "off", {"timeouts": 0.0}),
    ("timeouts", "90s", {"timeouts": 90.0}),
    ("forwards", "6006, 8888", {"forwards": (6006, 8888)}),
    ("forwards", "", {}),
    ("monitor", "10s", {"monitor": 10.0}),
    ("monitor", "0.1", {"monitor": MIN_MONITOR}),
    ("monitor", "0", {}),
    ("monitor", "none", {}),
    ("metrics", "9464", {"metrics": ("127.0.0.1", 9464)}),
    ("metrics", "0.0.0.0:9464", {"metrics": ("0.0.0.0", 9464)}),
    ("metrics", "[::1]:9464", {"metrics": ("::1", 9464)}),
    ("metrics", "none", {}),
    ("metrics", "", {}),
    ("on_crash", "True", {"on_crash": True}),
    ("on_crash", "none", {}),
    ("follow_children", "yes", {"follow_children": True}),
    ("follow_children", "", {}),
    ("values", "off", {"values": False}),
    ("values", "on", {}),
    ("values", "", {}),
]


def through_all(cases: list[tuple[str, str, object]]) -> list[tuple[Entrance, str, str, object]]:
    """Combine texts with entrances; a flag of `relay-agent run` takes no text."""
    return [
        (entrance, *case)
        for case in cases
        for entrance in ENTRANCES
        if not (entrance is by_run_option and ROWS[case[0]].is_flag)
    ]


@pytest.mark.parametrize(("entrance", "field", "text", "expected"), through_all(VALUES))
def test_a_text_means_the_same_everywhere(entrance: Entrance, field: str, text: str, expected: dict[str, object]):
    """However a setting reaches a process, its text gives the same settings."""
    assert DebugSettings(HC, **expected) == entrance(ROWS[field], text)


BAD = [
    ("port", "70000", "invalid port: '70000'"),
    ("port", "5678,5679", "invalid port: '5678,5679'"),
    ("ranks", "3-1", "invalid list of ranks: '3-1' is in reverse order"),
    ("wait", "soon", "invalid duration: 'soon'"),
    ("hold", "-1", "invalid duration: '-1'"),
    ("timeouts", "day", "invalid duration: 'day'"),
    ("monitor", "often", "invalid duration: 'often'"),
    ("metrics", "host:", "invalid address: 'host:'"),
    ("metrics", ":9464", "invalid address: ':9464'"),
    ("metrics", "99999", "invalid address: '99999'"),
    ("abort_on_timeout", "kill", "invalid action: 'kill'"),
    ("values", "some", "invalid flag: 'some'"),
    ("on_crash", "maybe", "invalid flag: 'maybe'"),
    ("forwards", "6006,web", "invalid port: 'web'"),
]


@pytest.mark.parametrize(("entrance", "field", "text", "sentence"), through_all(BAD))
def test_a_text_is_invalid_everywhere(entrance: Entrance, field: str, text: str, sentence: str):
    """The error is the same sentence, after the name by which the user knows the setting."""
    setting = ROWS[field]
    with pytest.raises(UsageError) as caught:
        entrance(setting, text)
    name = setting.variable if entrance in {by_variable, by_run_variable} else setting.option
    assert f"{name}: {sentence}" == caught.value.sentence
    assert caught.value.hint


@pytest.mark.parametrize("setting", [setting for setting in SETTINGS if setting.is_flag], ids=field_of)
def test_flags_of_run(setting: Setting):
    """A flag of `relay-agent run` is given by its name alone."""
    expected = DebugSettings(HC, **{setting.field: True})
    assert expected == by_run(setting.option) == by_argument(setting, "true")


@pytest.mark.parametrize("setting", [setting for setting in SETTINGS if setting.alias], ids=field_of)
def test_aliases(setting: Setting):
    """The short names of `relay-agent run` are those that it has always had."""
    assert {
        "port": "--port",
        "wait": "--wait",
        "hold": "--hold",
        "abort_on_timeout": "--on-timeout",
        "forwards": "--forward",
        "follow_children": "--follow-children",
    }[setting.field] == setting.alias
    value = [] if setting.is_flag else [setting.default or "6006"]
    assert by_run(setting.option, *value) == by_run(str(setting.alias), *value)


def test_a_bare_timeout_is_a_day_everywhere():
    """`--debug-timeouts` without a value has one meaning."""
    expected = DebugSettings(HC, timeouts=86400.0)
    assert expected == by_run("--debug-timeouts")
    assert expected == parse_step_arguments(["--is-debug", "--debug-relay-connection-name=myhc", "--debug-timeouts"])


@pytest.mark.parametrize("setting", SETTINGS, ids=field_of)
def test_the_default_that_is_shown_is_the_default(setting: Setting):
    """`--help` and the reference page say what holds when a setting is absent."""
    shown = setting.parse(setting.default) if setting.default else None
    default = getattr(DebugSettings(), setting.field)
    assert shown == default if setting.default else default in (None, ())


def test_each_field_has_one_row():
    """A field that is added to the settings has to be added to the table; each name is used once."""
    assert list(DebugSettings._fields[1:]) == [setting.field for setting in SETTINGS]
    for names in zip(*((row.option, row.variable, row.field) for row in SETTINGS), strict=True):
        assert len(set(names)) == len(SETTINGS)
