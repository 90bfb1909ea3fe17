"""Facts about the table of credential settings, and about everything that is made from it."""

import argparse
import contextlib
import inspect

import pytest

import relay_core.access_settings
from relay_agent import start_remote_debugging
from relay_agent.settings.environment import ACCESS_VARIABLES as JOB_VARIABLES
from relay_core.access_settings import ACCESS_OPTIONS, ACCESS_VARIABLES, AccessSettings
from relay_core.errors import ConfigurationError
from relay_core.program.options import access_settings, add_access_options
from tests.support.machine import secrets


def test_each_field_has_one_row() -> None:
    """A field that is added to the settings has to be added to the table, and then every program knows it."""
    assert sorted(AccessSettings._fields) == sorted(option.field for option in ACCESS_OPTIONS)


def test_each_field_has_its_option() -> None:
    """What is typed on a command line arrives in the field of that name."""
    parser = argparse.ArgumentParser()
    add_access_options(parser)
    line = [word for option in ACCESS_OPTIONS for word in (option.option, f"value of {option.field}")]
    expected = AccessSettings(**{field: f"value of {field}" for field in AccessSettings._fields})
    assert expected == access_settings(parser.parse_args(line))
    assert AccessSettings() == access_settings(parser.parse_args([]))


def test_each_field_but_the_secret_reaches_the_processes_of_a_job() -> None:
    """A connection string is in RELAY_CONNECTION_STRING only."""
    assert {*AccessSettings._fields} - {"connection_string"} == {*JOB_VARIABLES}


def test_each_field_is_a_keyword_of_the_call_in_a_job() -> None:
    """Two of them keep the names that they have in the azure-debug-relay package."""
    older = {"hc": "debug_relay_connection_name", "connection_string_secret": "debug_relay_connection_string_secret"}
    keywords = inspect.signature(start_remote_debugging).parameters
    assert set() == {older.get(field, field) for field in AccessSettings._fields} - {*keywords}


def test_processes_share_an_agent_if_these_variables_are_equal() -> None:
    """Every variable that decides about relay and credentials is in the list, those without an option included."""
    assert {"RELAY_TUNNEL_KEY", "AZRELAY_CONNECTION_STRING", "AZRELAY_CONNECTION_NAME"} <= {*ACCESS_VARIABLES}
    assert {option.variable for option in ACCESS_OPTIONS} - {None} <= {*ACCESS_VARIABLES}


def test_each_variable_belongs_to_an_option_or_needs_none() -> None:
    """The constants of the module, which other modules read, are the variables that the options' help names."""
    constants = {text for name, text in vars(relay_core.access_settings).items() if name.endswith("_VARIABLE")}
    assert constants == {*ACCESS_VARIABLES}


def test_a_connection_string_is_not_shown() -> None:
    """The text form names what is set, without the key."""
    text = f"Endpoint=sb://x.servicebus.windows.net/;SharedAccessKeyName=a;SharedAccessKey={secrets.new_key()}"
    settings = AccessSettings(hc="myhc", connection_string=text)
    secrets.check(repr(settings))
    assert "<AccessSettings hc=myhc connection_string=...>" == repr(settings)


@pytest.mark.parametrize(
    ("settings", "environ", "lacks"),
    [
        ({"connection_string_secret": "s"}, {}, True),
        ({"connection_string_secret": "s", "hc": "myhc", "identity": "managed"}, {}, True),
        ({}, {}, False),
        ({"connection_string_secret": "s", "key_vault": "v"}, {}, False),
        ({"connection_string_secret": "s", "namespace": "contoso"}, {}, False),
        ({"connection_string_secret": "s"}, {"KEY_VAULT_URL": "v"}, False),
        ({"connection_string_secret": "s"}, {"RELAY_CONNECTION_STRING_FILE": "/f"}, False),
        ({"connection_string_secret": "s"}, {"AZRELAY_CONNECTION_STRING": "x"}, False),
        ({"connection_string_secret": "s"}, {"RELAY_IDENTITY": "managed"}, True),
    ],
)
def test_a_secret_needs_a_vault(settings: dict[str, str], environ: dict[str, str], lacks: bool) -> None:
    """Unless there is another way to the relay."""
    with pytest.raises(ConfigurationError, match="without a Key Vault") if lacks else contextlib.nullcontext():
        AccessSettings(**{"hc": "myhc", **settings}).require_complete(environ)
