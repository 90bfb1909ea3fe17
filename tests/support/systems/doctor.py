"""Both doctors in this process, and what they found."""

from base64 import b64encode
from pathlib import Path

import pytest

from relay_agent.cli.doctor import examine as examine_node
from relay_client.doctor import examine as examine_client
from relay_core.access_settings import AccessSettings
from relay_core.diagnosis.checks import Examination, Result, Status
from tests.support.azure.network import clean_environment
from tests.support.machine import secrets
from tests.support.network.fleet import KEY
from tests.support.network.relay import HC, LocalRelay


def configure(monkeypatch: pytest.MonkeyPatch, relay: LocalRelay) -> LocalRelay:
    """Let both doctors find a relay in the environment, with the client's key."""
    clean_environment(monkeypatch, RELAY_CA_FILE=str(relay.ca_file))
    use(monkeypatch, relay.connection_string("send"))
    return relay


def use(monkeypatch: pytest.MonkeyPatch, connection_string: str, *, key: bytes = KEY) -> None:
    text = f"{connection_string};TunnelKey={b64encode(key).decode()}" if key else connection_string
    monkeypatch.setenv("RELAY_CONNECTION_STRING", text)


def at(host: str, port: int, *, hc: str = HC) -> str:
    """Return a connection string of rule `send` for another address."""
    key = secrets.new_key()
    return f"Endpoint=sb://{host}:{port};SharedAccessKeyName=send;SharedAccessKey={key};EntityPath={hc}"


async def examined_client(folder: Path, **options: object) -> Examination:
    return await examine_client(AccessSettings(), **{"ranks": None, "ports": None, "folder": folder, **options})


async def examined_node() -> Examination:
    return await examine_node(AccessSettings(), port=5678)


def failure(examination: Examination) -> Result:
    """Return the only failed check."""
    (failed,) = [each for each in examination.results if each.status is Status.FAILED]
    assert failed.exit_code == examination.exit_code
    return failed


def summary(result: Result) -> tuple[str, str, int]:
    """Return which check it was, what it found, and its exit code."""
    return result.check, result.finding, result.exit_code


def finding(examination: Examination, check: str) -> tuple[Status, str]:
    (found,) = [each for each in examination.results if each.check == check]
    return found.status, found.finding
