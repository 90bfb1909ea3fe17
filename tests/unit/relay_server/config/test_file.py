import contextlib
import logging
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay_core.errors import ConfigurationError
from relay_server.config.file import load, parse
from relay_server.config.model import HybridConnection, JwtIssuer, ManagementSettings, Right

FULL = """
[relay]
namespace = "relay.test"
aliases = ["127.0.0.1"]
bind = "127.0.0.2"
port = 8443
public_address = "relay.test:443"
honour_listener_selection = false

[tls]
certificate = "server.pem"
key = "/abs/server.key"

[limits]
accept_timeout = 5.5
accept_timeout_status = 504
recycle_after = 86400
max_listeners = 3

[management]
port = 9091
bind = "127.0.0.3"

[[rule]]
name = "root"
rights = ["manage"]
primary_key = "root-key"
secondary_key = "root-key-2"

[[hybrid_connection]]
path = "a/b"
requires_client_authorization = false

[[hybrid_connection.rule]]
name = "both"
rights = ["Listen", "Send"]
primary_key = "both-key"

[[hybrid_connection]]
path = "plain"
"""
DIRECTORY = Path("/etc/relay")


def test_every_field_is_read():
    """A full file becomes the configuration it describes."""
    config = parse(FULL, directory=DIRECTORY)
    assert ("relay.test", "127.0.0.1") == config.hosts
    assert ("127.0.0.2", 8443, "relay.test:443") == (config.bind, config.port, config.public_address)
    assert not config.honour_listener_selection
    assert (DIRECTORY / "server.pem", Path("/abs/server.key")) == (config.tls.certificate, config.tls.key)
    assert ManagementSettings(9091, "127.0.0.3") == config.management
    limits = config.limits
    assert (5.5, 504, 86400, 3) == (
        limits.accept_timeout,
        limits.accept_timeout_status,
        limits.recycle_after,
        limits.max_listeners,
    )
    assert ("root", frozenset({Right.MANAGE}), ("root-key", "root-key-2")) == (
        config.rules[0].name,
        config.rules[0].rights,
        config.rules[0].keys,
    )
    first, second = config.hybrid_connections
    assert ("a/b", False) == (first.path, first.requires_client_authorization)
    assert frozenset({Right.LISTEN, Right.SEND}) == first.rules[0].rights
    assert HybridConnection("plain") == second


def test_an_empty_file_is_a_relay_on_a_free_loopback_port():
    """Everything has a default, and the defaults listen on loopback."""
    config = parse("", directory=DIRECTORY)
    assert ("localhost", "127.0.0.1", 0) == (config.namespace, config.bind, config.port)
    assert DIRECTORY / "tls" == config.tls.directory
    assert config.management is None


@pytest.mark.parametrize(
    ("text", "sentence", "hint"),
    [
        ("[relya]", "the file: unknown field 'relya'", "did you mean 'relay'?"),
        ("[relay]\nprot = 1", "[relay]: unknown field 'prot'", "did you mean 'port'?"),
        ('[relay]\nport = "8443"', "[relay]: 'port' must be a whole number", ""),
        ("[relay]\nport = true", "[relay]: 'port' must be a whole number", ""),
        ("[limits]\nping_interval = nan", "[limits]: 'ping_interval' must be a number", ""),
        ("[limits]\nping_interval = inf", "[limits]: 'ping_interval' must be a number", ""),
        ("[limits]\nfoo = 1", "[limits]: unknown field 'foo'", "use one of"),
        ("[management]\nbind = '::1'", "[management]: 'port' is missing", ""),
        ("[management]\nport = 70000", "'port' in [management] must be from 0 to 65535", ""),
        ("relay = 1", "the file: 'relay' must be a table", ""),
        ("rule = 1", "the file: 'rule' must be a list of tables", ""),
        ("rule = [1]", "the file: 'rule' must be a list of tables", ""),
        ('[relay]\naliases = "x"', "[relay]: 'aliases' must be a list of strings", ""),
        ("[relay]\naliases = [1]", "[relay]: 'aliases' must be a list of strings", ""),
        ("[[hybrid_connection]]", "[[hybrid_connection]] number 1: 'path' is missing", ""),
        (
            '[[rule]]\nname="a"\nrights=["Read"]\nprimary_key="s3cret"',
            "[[rule]] number 1: 'rights' has unknown values (1 of 1)",
            "Listen",
        ),
        (
            '[[hybrid_connection]]\npath="x"\n[[hybrid_connection.rule]]\nname="a"\nrights=["Send"]\nprimery_key="s3cret"',
            "[[hybrid_connection]] number 1 [[rule]] number 1: 'primary_key' is missing",
            "",
        ),
        ('[[rule]]\nname="a"\nprimary_key="s3cret"', "rule 'a' has no rights", 'rights = ["Listen"]'),
        ("[relay", "invalid TOML", ""),
        (f"[relay]\nport = {'9' * 5000}", "invalid TOML at an unknown position", ""),
        ('[[rule]]\nprimary_key = s3cret"', "invalid TOML at line 2, column 15", ""),
    ],
)
def test_faults_name_table_and_field(text, sentence, hint):
    """A wrong file is refused with its table and field, a hint, and no value."""
    with pytest.raises(ConfigurationError) as caught:
        parse(text, directory=DIRECTORY)
    assert caught.value.sentence.startswith(sentence)
    assert hint in caught.value.hint
    assert "s3cret" not in str(caught.value)


VALUES = st.recursive(
    st.sampled_from(
        [
            "true",
            "1",
            "-1",
            "0.5",
            "nan",
            '"text"',
            '"hc"',
            '"Listen"',
            "[]",
            "{}",
            '["Send"]',
            '{x=["Send"]}',
            "1979-05-27",
        ]
    ),
    lambda inner: st.lists(inner, max_size=3).map(lambda items: f"[{', '.join(items)}]"),
    max_leaves=4,
)
NAMES = st.sampled_from(
    [
        "namespace",
        "port",
        "bind",
        "aliases",
        "path",
        "name",
        "rights",
        "primary_key",
        "directory",
        "certificate",
        "max_listeners",
        "issuer",
        "public_key",
        "audiences",
        "roles",
    ]
)
HEADERS = st.sampled_from(
    [
        "[relay]",
        "[tls]",
        "[limits]",
        "[[rule]]",
        "[[hybrid_connection]]",
        "[[hybrid_connection.rule]]",
        "[[jwt_issuer]]",
    ]
)
TABLES = st.tuples(HEADERS, st.dictionaries(NAMES, VALUES, max_size=4)).map(
    lambda table: "\n".join([table[0], *(f"{name} = {value}" for name, value in table[1].items())])
)


@given(st.text(max_size=60) | st.lists(TABLES, max_size=4).map("\n".join))
def test_any_text_is_a_configuration_or_a_configuration_error(text):
    """No text makes the parser fail in another way."""
    with contextlib.suppress(ConfigurationError):
        parse(text, directory=DIRECTORY)


@pytest.mark.parametrize("empty", ["", "audiences = []", "roles = {}", "[jwt_issuer.roles]"])
def test_an_issuer_with_an_empty_table(empty):
    """The defaults apply, as they do if the table is missing."""
    text = f"[[jwt_issuer]]\nissuer = 'i'\npublic_key = 'key.pem'\n{empty}"
    [issuer] = parse(text, directory=DIRECTORY).jwt_issuers
    assert JwtIssuer("i", DIRECTORY / "key.pem") == issuer


def test_a_missing_file_has_a_hint_how_to_make_one(tmp_path):
    """The hint for a missing file is the init command."""
    with pytest.raises(ConfigurationError) as caught:
        load(tmp_path / "relay.toml")
    assert "relay-server init" in caught.value.hint


def test_errors_in_a_file_name_the_file(tmp_path):
    """The user learns which file is wrong."""
    file = tmp_path / "relay.toml"
    file.write_text("[relay]\nport = -1")
    with pytest.raises(ConfigurationError, match=r"relay\.toml: 'port' must be from 0 to 65535"):
        load(file)


def test_a_file_that_others_may_read_is_warned_about(tmp_path, caplog):
    """Keys in a world-readable file cause a warning with the command that helps."""
    file = tmp_path / "relay.toml"
    file.write_text("")
    file.chmod(0o644)
    with caplog.at_level(logging.WARNING):
        load(file)
    assert f"chmod 600 {file}" in caplog.text
    caplog.clear()
    file.chmod(0o600)
    load(file)
    assert "" == caplog.text
