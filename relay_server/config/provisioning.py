"""`relay-server init`: creates the files of a relay, its agents and its clients.

    relay.toml                    the relay's configuration, with fresh random keys
    <hc>.agent.connection         connection string for relay-agent, with only the Listen right
    <hc>.client.connection        connection string for relay-client, with only the Send right
    tls/                          private CA and server certificate
    .gitignore                    keeps these files out of a repository

Both connection strings of a hybrid connection contain the same tunnel key, which the relay does not know. Files with
keys are readable by their owner only. For `NAME:SIZE`, the hybrid connections of a family are created, with the same
two keys.
"""

from __future__ import annotations

import base64
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from relay_core.errors import ConfigurationError
from relay_core.hyco.address import Endpoint
from relay_core.hyco.connection_string import TUNNEL_KEY_BYTES
from relay_core.hyco.family import FamilyName
from relay_server.config import certificates
from relay_server.config.file import parse
from relay_server.config.model import is_loopback

_HEAD = """\
# Created by `relay-server init`. This file contains keys; do not share it.

[relay]
namespace = "{namespace}"
bind = "{bind}"
port = {port}

[tls]
directory = "tls"
"""
_CONNECTION = """
[[hybrid_connection]]
path = "{path}"

[[hybrid_connection.rule]]
name = "agent"
rights = ["Listen"]
primary_key = "{agent_key}"

[[hybrid_connection.rule]]
name = "client"
rights = ["Send"]
primary_key = "{client_key}"
"""


@dataclass(frozen=True)
class Provisioned:
    """Paths of the created files."""

    config_file: Path
    ca_file: Path
    connection_files: tuple[tuple[Path, Path], ...]
    """For each hybrid connection: the connection strings of agent and client."""


def provision(directory: Path, paths: Sequence[str], *, namespace: str, port: int) -> Provisioned:
    """Create all files in `directory`, which must not contain any of them yet.

    Args:
        directory: Created if it does not exist.
        paths: Names of the hybrid connections, or `NAME:SIZE` for families.
        namespace: Host name that clients use. Unless it is a loopback name, the relay accepts connections from other
            machines.
        port: Port to listen on.

    Raises:
        ConfigurationError: A name is invalid, a file exists already, or the directory cannot be written to.
    """
    keys = {path: (_new_key(), _new_key()) for path in paths}
    bind = "127.0.0.1" if is_loopback(namespace) else "0.0.0.0"  # noqa: S104 - the user has named this machine
    text = _HEAD.format(namespace=namespace, bind=bind, port=port) + "".join(
        _CONNECTION.format(path=sibling, agent_key=agent, client_key=client)
        for path, (agent, client) in keys.items()
        for sibling in _siblings(path)
    )
    config = parse(text, directory=directory)  # raises an error for invalid names before anything is written
    files = {path: _connection_files(directory, path) for path in keys}
    config_file = directory / "relay.toml"
    authority = f"[{namespace}]:{port}" if ":" in namespace else f"{namespace}:{port}"
    _check_free([config_file, *(file for pair in files.values() for file in pair)])
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        for path, (agent_key, client_key) in keys.items():
            tunnel_key = base64.b64encode(secrets.token_bytes(TUNNEL_KEY_BYTES)).decode()
            for file, rule, key in zip(files[path], ("agent", "client"), (agent_key, client_key), strict=True):
                access = f"SharedAccessKeyName={rule};SharedAccessKey={key};EntityPath={path};TunnelKey={tunnel_key}"
                certificates.write_private(file, f"Endpoint=sb://{authority};{access}\n".encode())
        certificates.write_private(config_file, text.encode())
        if not (ignored := directory / ".gitignore").exists():
            ignored.write_text("relay.toml\n*.connection\ntls/\n")
    except OSError as error:
        raise ConfigurationError(f"cannot write to {directory}: {error.strerror}") from error
    ca_file = cast("Path", certificates.prepare(config.tls, config.hosts).ca)  # `_HEAD` names a directory for it
    return Provisioned(config_file, ca_file, tuple(files.values()))


def _siblings(path: str) -> list[str]:
    """Return the names of the hybrid connections that `NAME` or `NAME:SIZE` stands for."""
    name = FamilyName.parse(path)
    # Without a size, the name is written as it was given, so that an invalid one is refused.
    return [path] if name.size is None else [one.path for one in Endpoint("", 0, name.path, name.size).siblings]


def _new_key() -> str:
    """Return a key in Azure's format: 32 random bytes as base64."""
    return base64.b64encode(secrets.token_bytes(32)).decode()


def _connection_files(directory: Path, path: str) -> tuple[Path, Path]:
    name = path.partition(":")[0].replace("/", "%2F")
    return directory / f"{name}.agent.connection", directory / f"{name}.client.connection"


def _check_free(files: Sequence[Path]) -> None:
    if taken := next((file for file in files if file.exists()), None):
        raise ConfigurationError(
            f"{taken} already exists, and its keys may be in use",
            hint="choose another directory, or delete the existing files first",
        )
