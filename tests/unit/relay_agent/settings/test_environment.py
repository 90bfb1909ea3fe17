"""Settings in environment variables."""

import pytest

from relay_agent.settings.environment import from_environment
from relay_agent.settings.model import DebugSettings, RankSelection
from relay_core.access_settings import AccessSettings
from relay_core.errors import UsageError
from tests.support.data.debug_settings import ALL_SET

ON = {"RELAY_DEBUG": "1"}


@pytest.mark.parametrize("mode", ["", "0", "off", "False", "no", "none", " OFF "])
def test_debugging_is_off_by_many_words(mode: str):
    """Nothing else is looked at then, however wrong it is."""
    assert from_environment({"RELAY_DEBUG": mode, "RELAY_DEBUG_PORT": "x"}) is None


def test_one_variable_is_enough():
    """The others have defaults, those of the options; credentials are where they always are."""
    assert DebugSettings() == from_environment(ON)
    assert DebugSettings() == from_environment({"RELAY_DEBUG": "wait", "RELAY_DEBUG_PORT": ""})


def test_on_demand_means_that_nobody_waits():
    """Whatever ranks are named besides."""
    settings = from_environment({"RELAY_DEBUG": "on-demand", "RELAY_DEBUG_RANKS": "all"})
    assert settings is not None
    assert RankSelection() == settings.ranks


def test_every_setting_has_its_variable():
    """Durations may have units, lists have commas, flags are text."""
    environ = ON | {
        "RELAY_DEBUG_HC": "myhc",
        "RELAY_DEBUG_NAMESPACE": "contoso",
        "RELAY_DEBUG_CA_FILE": "/ca.pem",
        "RELAY_DEBUG_PORT": "6000",
        "RELAY_DEBUG_RANKS": "0,3-5",
        "RELAY_DEBUG_WAIT": "10m",
        "RELAY_DEBUG_ON_TIMEOUT": "abort",
        "RELAY_DEBUG_ON_CRASH": "true",
        "RELAY_DEBUG_HOLD": "2h",
        "RELAY_DEBUG_TIMEOUTS": "3600",
        "RELAY_DEBUG_FORWARD": "6006, 8888",
        "RELAY_DEBUG_FOLLOW_CHILDREN": "no",
        "RELAY_DEBUG_VALUES": "off",
    }
    expected = ALL_SET._replace(
        access=AccessSettings(hc="myhc", namespace="contoso", ca_file="/ca.pem"), follow_children=False
    )
    assert expected == from_environment(environ)


def test_the_old_package_can_name_the_hybrid_connection():
    """AZRELAY_CONNECTION_NAME counts where RELAY_DEBUG_HC is absent."""
    settings = from_environment(ON | {"AZRELAY_CONNECTION_NAME": "old"})
    assert settings is not None
    assert AccessSettings(hc="old") == settings.access


@pytest.mark.parametrize(
    ("variable", "text", "sentence"),
    [
        ("RELAY_DEBUG", "perhaps", "RELAY_DEBUG: invalid mode: 'perhaps'"),
        ("RELAY_DEBUG_PORT", "70000", "RELAY_DEBUG_PORT: invalid port: '70000'"),
        ("RELAY_DEBUG_PORT", "5678,5679", "RELAY_DEBUG_PORT: invalid port: '5678,5679'"),
        ("RELAY_DEBUG_RANKS", "last", "RELAY_DEBUG_RANKS: invalid list of ranks: 'last'"),
        ("RELAY_DEBUG_WAIT", "soon", "RELAY_DEBUG_WAIT: invalid duration: 'soon'"),
        ("RELAY_DEBUG_ON_TIMEOUT", "kill", "RELAY_DEBUG_ON_TIMEOUT: invalid action: 'kill'"),
        ("RELAY_DEBUG_ON_CRASH", "maybe", "RELAY_DEBUG_ON_CRASH: invalid flag: 'maybe'"),
        ("RELAY_DEBUG_FORWARD", "6006,web", "RELAY_DEBUG_FORWARD: invalid port: 'web'"),
    ],
)
def test_a_value_that_makes_no_sense_is_named(variable: str, text: str, sentence: str):
    """By its variable, for that is where the user wrote it."""
    with pytest.raises(UsageError) as raised:
        from_environment(ON | {variable: text})
    assert sentence == raised.value.sentence


def test_a_value_that_came_from_an_option_is_named_by_that():
    """`relay-agent run` knows which option sets which variable."""
    with pytest.raises(UsageError) as raised:
        from_environment(ON | {"RELAY_DEBUG_RANKS": "x"}, name_of=lambda _setting: "--ranks")
    assert "--ranks: invalid list of ranks: 'x'" == raised.value.sentence


def test_watchdogs_are_not_raised_beyond_what_poll_can_count():
    """A month in milliseconds is more than an int holds."""
    settings = from_environment(ON | {"RELAY_DEBUG_TIMEOUTS": "720h"})
    assert settings is not None
    assert settings.timeouts is not None
    assert settings.timeouts * 1000 < 2**31


PAI = ON | {
    "PAI_CURRENT_TASK_ROLE_NAME": "train",
    "PAI_PORT_LIST_train_0_debug": "20111,20112",
    "PAI_PORT_LIST_train_1_debug": "20333",
    "DEBUG_PORT_NAME": "debug",
    "DEBUG_TIMEOUT": "60",
}


def test_the_variables_of_openpais_own_tool_count():
    """The port reserved for task 0 is rank 0's, in every task."""
    settings = from_environment(PAI)
    assert settings is not None
    assert (20111, 60.0) == (settings.port, settings.wait)


def test_our_own_variables_come_before_those_of_openpai():
    """And outside of OpenPAI a variable called DEBUG_TIMEOUT is somebody else's."""
    settings = from_environment(PAI | {"RELAY_DEBUG_PORT": "5678", "RELAY_DEBUG_WAIT": "0"})
    assert settings is not None
    assert (5678, 0.0) == (settings.port, settings.wait)
    assert DebugSettings() == from_environment(ON | {"DEBUG_TIMEOUT": "60", "DEBUG_PORT_NAME": "debug"})
