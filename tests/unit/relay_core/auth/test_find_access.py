"""Facts about which source is used, and what becomes of it; nothing here needs a network."""

import base64
import subprocess
import sys
from pathlib import Path

import pytest

from relay_core.access_settings import AccessSettings
from relay_core.auth.entra import EntraCredential
from relay_core.auth.find_access import Search, explain_access, find_access
from relay_core.auth.sas_credentials import SasKeyCredential
from relay_core.auth.sources import choose
from relay_core.errors import ConfigurationError, UsageError
from tests.support.azure.network import clean_environment
from tests.support.machine import secrets
from tests.support.machine.programs import REPOSITORY, environment


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No configuration but the test's own."""
    clean_environment(monkeypatch)
    monkeypatch.chdir(tmp_path)


def string(host: str = "contoso.example", more: str = "") -> str:
    return f"Endpoint=sb://{host};SharedAccessKeyName=k;SharedAccessKey={secrets.new_key()};EntityPath=myhc{more}"


def key_file(directory: Path, key: str) -> str:
    path = directory / "tunnel.key"
    path.touch(mode=0o600)
    path.write_text(key)
    return str(path)


@pytest.mark.parametrize(
    ("settings", "environ", "expected"),
    [
        ({}, {}, None),
        ({}, {"RELAY_CONNECTION_STRING": "x", "RELAY_NAMESPACE": "contoso"}, "RELAY_CONNECTION_STRING"),
        ({}, {"RELAY_NAMESPACE": "contoso"}, "Entra ID"),
        ({}, {"RELAY_CONNECTION_STRING_SECRET": "s", "KEY_VAULT_URL": "v", "RELAY_NAMESPACE": "n"}, "Key Vault"),
        ({}, {"RELAY_CONNECTION_STRING_SECRET": "s", "RELAY_NAMESPACE": "n"}, "Entra ID"),
        ({}, {"KEY_VAULT_URL": "v"}, None),
        ({"connection_string_secret": "s"}, {"RELAY_CONNECTION_STRING": "x"}, "RELAY_CONNECTION_STRING"),
        ({"connection_string_secret": "s"}, {"RELAY_CONNECTION_STRING": "x", "KEY_VAULT_URL": "v"}, "Key Vault"),
        ({"namespace": "n"}, {"RELAY_CONNECTION_STRING": "x"}, "Entra ID"),
        ({"namespace": "n", "connection_string_file": "f"}, {}, "--connection-string-file"),
        ({"connection_string": "x", "connection_string_file": "f"}, {}, "--connection-string"),
    ],
)
def test_which_source_is_used(
    monkeypatch: pytest.MonkeyPatch, settings: dict[str, str], environ: dict[str, str], expected: str | None
) -> None:
    """What is named explicitly comes before what the environment holds; within each, the documented order counts."""
    for name, text in environ.items():
        monkeypatch.setenv(name, text)
    source = choose(Search(AccessSettings(**settings), side="agent").access_sources())
    assert expected == (source.name if source else None)


async def test_a_key_needs_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection string with a key gives address, credential and tunnel key."""
    key = secrets.new_key()
    monkeypatch.setenv("RELAY_CONNECTION_STRING", string(more=f";TunnelKey={key}"))
    access = await find_access(AccessSettings(), side="client")
    assert isinstance(access.credential, SasKeyCredential)
    assert base64.b64decode(key) == access.tunnel_key
    assert "sb://contoso.example/myhc" == str(access.endpoint)


async def test_entra_needs_a_namespace_and_a_hybrid_connection() -> None:
    """A bare namespace becomes a host of the public cloud; without --hc nothing can be addressed."""
    access = await find_access(AccessSettings(namespace="Contoso", hc="/myhc/"), side="client")
    assert "sb://contoso.servicebus.windows.net/myhc" == str(access.endpoint)
    assert isinstance(access.credential, EntraCredential)
    assert access.tunnel_key is None
    with pytest.raises(UsageError, match="--hc"):
        await find_access(AccessSettings(namespace="contoso"), side="client")


async def test_where_tunnel_keys_come_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Option, connection string, variable and file of the environment, in this order."""
    keys = {name: secrets.new_key() for name in ("option", "string", "variable", "file")}
    bare, sealed = string(), string(more=f";TunnelKey={keys['string']}")

    async def found(text: str, **settings: str) -> str:
        access = await find_access(AccessSettings(connection_string=text, **settings), side="agent")
        return next(name for name, key in keys.items() if base64.b64decode(key) == access.tunnel_key)

    monkeypatch.setenv("RELAY_TUNNEL_KEY_FILE", key_file(tmp_path, keys["file"] + "\n"))
    assert "file" == await found(bare)
    monkeypatch.setenv("RELAY_TUNNEL_KEY", keys["variable"])
    assert "variable" == await found(bare)
    assert "string" == await found(sealed)
    (tmp_path / "other").mkdir()
    assert "option" == await found(sealed, tunnel_key_file=key_file(tmp_path / "other", keys["option"]))


@pytest.mark.parametrize("text", ["", "c2hvcnQ=", "not base64!"])
async def test_a_tunnel_key_that_is_none(tmp_path: Path, text: str) -> None:
    """A broken tunnel key is an error that names its place; to continue unencrypted would be worse."""
    settings = AccessSettings(connection_string=string(), tunnel_key_file=key_file(tmp_path, text))
    with pytest.raises(
        ConfigurationError, match=r"tunnel key from .*tunnel\.key is not 32 bytes encoded as base64.*urandom"
    ):
        await find_access(settings, side="agent")


async def test_a_secret_without_a_vault() -> None:
    """A named secret needs a vault; the variable and the option are named."""
    for settings in (
        AccessSettings(connection_string_secret="s"),
        AccessSettings(connection_string=string(), tunnel_key_secret="s"),
    ):
        with pytest.raises(
            ConfigurationError, match="secret 's' is given without a Key Vault.*KEY_VAULT_URL.*--key-vault"
        ):
            await find_access(settings, side="agent")


async def test_the_explanation_of_nothing() -> None:
    """With nothing configured every source has its line, and the error is the one that a start would give."""
    lines, error = await explain_access(Search(AccessSettings(), side="client"))
    assert isinstance(error, ConfigurationError)
    names = [line[2:].split("  ")[0] for line in lines[1:]]
    assert names == [
        "--connection-string",
        "--connection-string-file",
        "RELAY_CONNECTION_STRING",
        "RELAY_CONNECTION_STRING_FILE",
        ".azrelay.json",
        "AZRELAY_CONNECTION_STRING",
        "Key Vault",
        "Entra ID",
    ]


async def test_the_explanation_of_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """The source that counts shows address and rule; the others that are there say what comes before them."""
    monkeypatch.setenv("RELAY_CONNECTION_STRING", string())
    monkeypatch.setenv("RELAY_NAMESPACE", "contoso")
    monkeypatch.setenv("RELAY_TUNNEL_KEY", "nonsense")
    lines, error = await explain_access(Search(AccessSettings(), side="client"))
    text = "\n".join(lines)
    assert "RELAY_CONNECTION_STRING       set -> used: sb://contoso.example/myhc, key of rule 'k'" in text
    assert "namespace contoso (not used: RELAY_CONNECTION_STRING takes precedence)" in text
    assert "RELAY_TUNNEL_KEY         set -> unusable: the tunnel key from RELAY_TUNNEL_KEY is not" in text
    assert isinstance(error, ConfigurationError)
    secrets.check(text)


@pytest.mark.parametrize("how", ["variable", "file", "flag", "old"])
def test_a_key_imports_nothing_of_azure(tmp_path: Path, how: str) -> None:
    """With a connection string neither azure, nor msal, nor aiohttp is imported, wherever the string comes from."""
    code = """if True:
        import asyncio, sys
        from relay_core.access_settings import AccessSettings
        from relay_core.auth import find_access
        settings = AccessSettings(connection_string=sys.stdin.read() or None, namespace=None)
        access = asyncio.run(find_access(settings, side="agent"))
        asyncio.run(access.credential.token(access.endpoint))
        print(sorted({name.split(".")[0] for name in sys.modules} & {"azure", "msal", "aiohttp", "requests"}))
    """
    text, path = string(), tmp_path / "connection"
    path.touch(mode=0o600)
    path.write_text(text)
    env = {
        "variable": {"RELAY_CONNECTION_STRING": text},
        "file": {"RELAY_CONNECTION_STRING_FILE": str(path)},
        "old": {"AZRELAY_CONNECTION_STRING": text},
    }.get(how, {})
    # Secrets and namespaces beside it change nothing.
    beside = {"KEY_VAULT_URL": "https://contoso-kv.vault.azure.net", "RELAY_NAMESPACE": "contoso"}
    finished = subprocess.run(
        [sys.executable, "-c", code],
        input=text if how == "flag" else "",
        env=environment(**env, **beside, PYTHONPATH=str(REPOSITORY)),
        capture_output=True,
        text=True,
        check=True,
    )
    assert finished.stdout == "[]\n"
