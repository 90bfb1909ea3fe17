"""Facts about the command line and environment of the task that runs relay-client."""

from pathlib import PurePosixPath

import pytest

from relay_client.editor_setup.vscode import Places, access_arguments, missing_secrets, task_environ
from relay_core.access_settings import AccessSettings
from relay_core.errors import UsageError

PLACES = Places(PurePosixPath("/home/alice/job"), PurePosixPath("/home/alice"), PurePosixPath("/home/alice/job/sub"))


@pytest.mark.parametrize(
    ("path", "written"),
    [
        ("ca.pem", "${workspaceFolder}/sub/ca.pem"),
        ("/home/alice/relay/ca.pem", "${userHome}/relay/ca.pem"),
        ("/etc/ca.pem", "/etc/ca.pem"),
        ("/home/alicex/ca.pem", "/home/alicex/ca.pem"),
    ],
)
def test_paths(path: str, written: str) -> None:
    """Paths are absolute, because the task runs elsewhere, and begin with VS Code's variables where possible."""
    assert written == PLACES.portable(path)


def test_options() -> None:
    """The options of the command line are those of the task, in the order of the reference."""
    settings = AccessSettings(hc="myhc", connection_string_secret="relay", key_vault="kv", ca_file="/etc/ca.pem")
    assert [
        *("--hc", "myhc"),
        *("--connection-string-secret", "relay"),
        *("--key-vault", "kv"),
        *("--ca-file", "/etc/ca.pem"),
    ] == access_arguments(settings, PLACES)


def test_a_connection_string_is_refused() -> None:
    """A connection string on the command line is an error: the task's file is not a place for a key."""
    with pytest.raises(UsageError, match="--connection-string is a secret") as failure:
        access_arguments(AccessSettings(connection_string="Endpoint=sb://x/;SharedAccessKey=abc"), PLACES)
    assert "abc" not in str(failure.value)


def test_variables() -> None:
    """Variables about credentials are written, except those that an option overrides and those that hold a secret."""
    environ = {
        "RELAY_CONNECTION_STRING": "Endpoint=sb://x/;SharedAccessKey=abc",
        "RELAY_TUNNEL_KEY": "abc",
        "RELAY_CONNECTION_STRING_FILE": "/home/alice/relay/myhc.connection",
        "RELAY_IDENTITY": "dev",
        "RELAY_CA_FILE": "/etc/ca.pem",
        "RELAY_NAMESPACE": "",
        "HOME": "/home/alice",
    }
    assert {
        "RELAY_CONNECTION_STRING_FILE": "${userHome}/relay/myhc.connection",
        "RELAY_IDENTITY": "dev",
    } == task_environ(AccessSettings(ca_file="x"), environ, PLACES)


@pytest.mark.parametrize(
    ("settings", "environ", "missing"),
    [
        ({}, {"RELAY_CONNECTION_STRING": "x"}, {"RELAY_CONNECTION_STRING": "--connection-string-file"}),
        ({}, {"AZRELAY_CONNECTION_STRING": "x"}, {"AZRELAY_CONNECTION_STRING": "--connection-string-file"}),
        ({"namespace": "x"}, {"RELAY_CONNECTION_STRING": "x"}, {}),
        ({"namespace": "x"}, {"RELAY_TUNNEL_KEY": "x"}, {"RELAY_TUNNEL_KEY": "--tunnel-key-file"}),
        ({"tunnel_key_file": "x"}, {"RELAY_TUNNEL_KEY": "x"}, {}),
    ],
)
def test_secrets_that_the_task_lacks(settings, environ, missing) -> None:
    """A secret in the environment that the task would need is named, with the option to use instead."""
    assert missing == missing_secrets(AccessSettings(**settings), environ)
