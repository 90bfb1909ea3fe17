import subprocess
from pathlib import Path

import pytest

from relay_core.errors import ConfigurationError
from relay_core.hyco.connection_string import ConnectionString
from relay_server.config.file import load
from relay_server.config.model import Right
from relay_server.config.provisioning import provision


def test_everything_is_written_and_fits_together(tmp_path):
    """The relay's file and the connection strings agree on keys, names and the port, and rights are minimal."""
    made = provision(tmp_path / "r", ["myhc", "team/hc"], namespace="relay.test", port=9443)
    config = load(made.config_file)
    assert ("relay.test", 9443) == (config.namespace, config.port)
    for connection, files in zip(config.hybrid_connections, made.connection_files, strict=True):
        agent, client = (ConnectionString.parse(file.read_text()) for file in files)
        rules = {rule.name: rule for rule in connection.rules}
        for parsed, right in ((agent, Right.LISTEN), (client, Right.SEND)):
            rule = rules[parsed.key_name]
            assert (frozenset({right}), (parsed.key,)) == (rule.rights, rule.keys)
            assert ("relay.test", 9443, connection.path) == (parsed.host, parsed.port, parsed.entity_path)
        assert agent.tunnel_key == client.tunnel_key
        assert agent.key != client.key
    assert made.ca_file.exists()


def test_hybrid_connections_share_no_key(tmp_path):
    """Each hybrid connection has keys and a tunnel key of its own, and the relay's file has no tunnel key."""
    made = provision(tmp_path, ["one", "two"], namespace="localhost", port=1)
    parsed = [ConnectionString.parse(file.read_text()) for pair in made.connection_files for file in pair]
    assert 4 == len({item.key for item in parsed})
    assert 2 == len({item.tunnel_key for item in parsed})
    assert "TunnelKey" not in made.config_file.read_text()


def test_a_family_has_one_pair_of_connection_strings(tmp_path):
    """All of its hybrid connections accept the two keys, and the strings contain the size."""
    made = provision(tmp_path, ["team/alice:3"], namespace="localhost", port=1)
    config = load(made.config_file)
    paths = ["team/alice", "team/alice-1", "team/alice-2"]
    assert paths == [connection.path for connection in config.hybrid_connections]
    assert 1 == len({connection.rules for connection in config.hybrid_connections})
    (files,) = made.connection_files
    assert ["team%2Falice.agent.connection", "team%2Falice.client.connection"] == [file.name for file in files]
    for file in files:
        parsed = ConnectionString.parse(file.read_text())
        assert paths == [sibling.path for sibling in parsed.endpoint().siblings]
        assert parsed.key in {key for rule in config.hybrid_connections[2].rules for key in rule.keys}


@pytest.mark.parametrize(
    ("namespace", "bind"), [("localhost", "127.0.0.1"), ("127.0.0.1", "127.0.0.1"), ("relay.test", "0.0.0.0")]
)
def test_other_machines_can_connect_if_the_relay_has_a_name_for_them(tmp_path, namespace, bind):
    """Otherwise the relay listens on loopback."""
    assert bind == load(provision(tmp_path, ["myhc"], namespace=namespace, port=1).config_file).bind


def test_a_repository_ignores_the_files(tmp_path):
    """Git lists none of them, although they contain keys; an existing .gitignore stays as it is."""
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
    provision(tmp_path / "relay", ["myhc"], namespace="localhost", port=1)
    status = subprocess.run(["git", "status", "--porcelain", "-uall"], cwd=tmp_path, check=True, capture_output=True)
    assert status.stdout == b"?? relay/.gitignore\n"
    (tmp_path / ".gitignore").write_text("mine\n")
    provision(tmp_path, ["myhc"], namespace="localhost", port=1)
    assert (tmp_path / ".gitignore").read_text() == "mine\n"


def test_files_with_keys_are_private(tmp_path):
    """Only the owner reads the configuration and the connection strings."""
    made = provision(tmp_path / "new", ["hc"], namespace="localhost", port=1)
    files = [made.config_file, *made.connection_files[0]]
    assert {0o600} == {file.stat().st_mode & 0o777 for file in files}
    assert 0o700 == (tmp_path / "new").stat().st_mode & 0o777


@pytest.mark.parametrize("taken", ["relay.toml", "a%2Fb.client.connection"])
def test_nothing_is_overwritten(tmp_path, taken):
    """One file that exists already stops everything before anything is written."""
    (tmp_path / taken).write_text("precious")
    with pytest.raises(ConfigurationError, match="already exists"):
        provision(tmp_path, ["a/b"], namespace="localhost", port=1)
    assert [taken] == [file.name for file in tmp_path.iterdir()]
    assert "precious" == (tmp_path / taken).read_text()


@pytest.mark.parametrize(
    ("paths", "namespace"),
    [
        (["a b"], "localhost"),
        (["a", "A"], "localhost"),
        (["a"], "http://x"),
        (['x"\n'], "h"),
        (["a:0"], "h"),
        (["a:2", "a-1"], "h"),
    ],
)
def test_names_that_would_not_work_are_refused(tmp_path, paths, namespace):
    """A name that the relay could not serve writes nothing."""
    with pytest.raises(ConfigurationError):
        provision(tmp_path, paths, namespace=namespace, port=1)
    assert [] == list(tmp_path.iterdir())


def test_a_directory_that_cannot_be_made_is_a_configuration_error(tmp_path):
    """A file in the directory's place is reported, not raised."""
    (tmp_path / "r").write_text("")
    with pytest.raises(ConfigurationError, match="cannot write to"):
        provision(tmp_path / "r", ["hc"], namespace="localhost", port=1)


def test_connection_strings_are_readable(tmp_path):
    """They have the relay's address, which may be an IPv6 one, the hybrid connection, the rule and the keys."""
    made = provision(tmp_path / "relay", ["p"], namespace="::1", port=1)
    ((agent, client),) = [map(ConnectionString.parse, map(Path.read_text, pair)) for pair in made.connection_files]
    for parsed, rule in ((agent, "agent"), (client, "client")):
        assert ("::1", 1, "p", rule) == (parsed.host, parsed.port, parsed.entity_path, parsed.key_name)
    assert agent.key != client.key
    assert agent.tunnel_key == client.tunnel_key
    assert 32 == len(agent.tunnel_key)
