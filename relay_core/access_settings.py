"""One table, for all programs, of the settings that select a hybrid connection and its credentials.

`ACCESS_OPTIONS` defines the options of relay-client and relay-agent, the RELAY_DEBUG_* variables in which `relay-agent
run` passes them on, the settings that processes on a node must have in common to share an agent, and the reference
page. If an option is absent, its `variable` applies. Jobs import this module, but never `relay_core.auth`, which reads
the secrets.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Literal, NamedTuple

from relay_core.errors import ConfigurationError

Side = Literal["agent", "client"]
"""The kind of program. An agent runs on cloud compute and a client on a developer's machine, so their identities
differ."""

CONNECTION_STRING_VARIABLE = "RELAY_CONNECTION_STRING"
CONNECTION_STRING_FILE_VARIABLE = "RELAY_CONNECTION_STRING_FILE"
CONNECTION_STRING_SECRET_VARIABLE = "RELAY_CONNECTION_STRING_SECRET"  # noqa: S105 - a variable's name
KEY_VAULT_VARIABLE = "KEY_VAULT_URL"
"""This name comes from Microsoft's guide to secrets in Azure ML jobs."""
NAMESPACE_VARIABLE = "RELAY_NAMESPACE"
IDENTITY_VARIABLE = "RELAY_IDENTITY"
TUNNEL_KEY_VARIABLE = "RELAY_TUNNEL_KEY"
"""The key itself. An option for it would leak it: other users can read command lines."""
TUNNEL_KEY_FILE_VARIABLE = "RELAY_TUNNEL_KEY_FILE"
TUNNEL_KEY_SECRET_VARIABLE = "RELAY_TUNNEL_KEY_SECRET"  # noqa: S105 - a variable's name
CA_FILE_VARIABLE = "RELAY_CA_FILE"
OLD_STRING_VARIABLE = "AZRELAY_CONNECTION_STRING"
"""A variable of the azure-debug-relay package, as is the next one."""
OLD_NAME_VARIABLE = "AZRELAY_CONNECTION_NAME"


class AccessSettings(NamedTuple):
    """The settings given on a command line or in a call. None means that the environment applies."""

    hc: str | None = None
    """Hybrid connection, or `NAME:SIZE` for a family; a connection string may also name it."""
    connection_string: str | None = None
    connection_string_file: str | None = None
    connection_string_secret: str | None = None
    """Name of a Key Vault secret."""
    key_vault: str | None = None
    """URL or bare name of the vault that contains the named secrets."""
    namespace: str | None = None
    """Host name or bare name of a relay's namespace, for access with Entra ID tokens."""
    identity: str | None = None
    """The Entra identity to use; see `relay_core.auth.identity`."""
    tunnel_key_file: str | None = None
    tunnel_key_secret: str | None = None
    """Name of a Key Vault secret that contains only the tunnel key."""
    ca_file: str | None = None
    """PEM file with CA certificates to trust in addition to the system's own."""

    def __repr__(self) -> str:
        """Show the fields that are set, but not the key in a connection string."""
        shown = {name: "..." if name == "connection_string" else text for name, text in self.given().items()}
        return f"<AccessSettings{''.join(f' {name}={text}' for name, text in shown.items())}>"

    def given(self) -> dict[str, str]:
        """Return the fields that are set."""
        return {name: text for name, text in self._asdict().items() if text is not None}

    def selects_relay(self, environ: Mapping[str, str]) -> bool:
        """Return whether these settings or the environment name a relay, completely or in part."""
        return self._gives_any(_RELAY_FIELDS, environ, OLD_STRING_VARIABLE, OLD_NAME_VARIABLE)

    def require_complete(self, environ: Mapping[str, str]) -> None:
        """Check that a job with these settings and this environment can have access to a hybrid connection.

        Raises:
            ConfigurationError: no hybrid connection is given, or a secret without a Key Vault or another credential.
        """
        if not self.hc and not self._gives_any(_CONNECTION_STRINGS, environ, OLD_STRING_VARIABLE):
            # a connection string may have an EntityPath
            raise ConfigurationError("no hybrid connection given", hint="add --debug-relay-connection-name")
        has_way = self._gives_any(_WAYS_WITHOUT_SECRET, environ, OLD_STRING_VARIABLE)
        if self.connection_string_secret and not has_way:
            raise ConfigurationError(
                f"secret '{self.connection_string_secret}' is given without a Key Vault",
                hint=f"set {KEY_VAULT_VARIABLE} in the job's environment",
            )

    def _gives_any(self, fields: Collection[str], environ: Mapping[str, str], *old_variables: str) -> bool:
        """Return whether one of these fields is set, or a variable that applies in its place."""
        options = [option for option in ACCESS_OPTIONS if option.field in fields]
        variables = [*old_variables, *(option.variable for option in options if option.variable)]
        return any(getattr(self, option.field) for option in options) or any(environ.get(name) for name in variables)


class AccessOption(NamedTuple):
    """One row of the table."""

    field: str
    """Field of `AccessSettings`."""
    metavar: str
    help: str
    default: str = ""
    """Description of the value that applies if neither option nor variable is given; "" if there is none."""

    @property
    def option(self) -> str:
        """The option of relay-client, `relay-agent serve` and `relay-agent run`."""
        return f"--{self.field.replace('_', '-')}"

    @property
    def variable(self) -> str | None:
        """Environment variable that applies if the option is absent."""
        return _OTHER_VARIABLES.get(self.field, f"RELAY_{self.field.upper()}")

    @property
    def is_file(self) -> bool:
        """Whether the value is a path."""
        return self.field.endswith("_file")


_OTHER_VARIABLES = {"hc": None, "key_vault": KEY_VAULT_VARIABLE}
"""The variables that are not named after their option; a job gets its hybrid connection in another way."""
ACCESS_OPTIONS = (
    AccessOption(
        "hc", "NAME", "hybrid connection, or NAME:SIZE for a family", "the EntityPath in the connection string"
    ),
    AccessOption("connection_string_file", "FILE", "file that contains the connection string (mode 0600)"),
    AccessOption("connection_string", "TEXT", "connection string; other users can see it with 'ps'"),
    AccessOption("connection_string_secret", "NAME", "Key Vault secret that contains the connection string"),
    AccessOption("key_vault", "URL", "URL or name of the Key Vault that contains the named secrets"),
    AccessOption(
        "namespace", "HOST", "relay namespace, for access with Entra ID tokens instead of a connection string"
    ),
    AccessOption(
        "identity", "NAME", "use only this Entra identity, such as azure-cli, or this group of identities: dev or prod"
    ),
    AccessOption("tunnel_key_file", "FILE", "file that contains the tunnel key (mode 0600)"),
    AccessOption("tunnel_key_secret", "NAME", "Key Vault secret that contains the tunnel key"),
    AccessOption("ca_file", "FILE", "CA certificates to trust in addition to the system's own"),
)
"""In the order of `--help`."""

_CONNECTION_STRINGS = frozenset({"connection_string", "connection_string_file", "connection_string_secret"})
_RELAY_FIELDS = _CONNECTION_STRINGS | {"hc", "namespace"}
"""The fields that select a relay; the other fields do so only in combination with these."""
_WAYS_WITHOUT_SECRET = frozenset({"connection_string", "connection_string_file", "key_vault", "namespace"})
"""The fields of which one is required beside a secret: its vault, or another way to the relay."""

ACCESS_VARIABLES = (
    *(option.variable for option in ACCESS_OPTIONS if option.variable is not None),
    TUNNEL_KEY_VARIABLE,
    OLD_STRING_VARIABLE,
    OLD_NAME_VARIABLE,
)
"""Every variable that selects a program's relay and credentials."""
