"""Facts about what both doctors check before a token is sent: configuration and network, each failure provoked."""

import asyncio
import functools
import time
from email.utils import formatdate
from pathlib import Path

import pytest

from relay_client.doctor import examine as examine_client
from relay_core.access_settings import AccessSettings
from relay_core.diagnosis import path_to_relay
from relay_core.diagnosis.checks import Status
from tests.support.azure.network import clean_environment
from tests.support.machine.ports import free_port
from tests.support.machine.streams import local_server
from tests.support.network.impostor import impostor
from tests.support.network.relay import LocalRelay
from tests.support.systems.doctor import at, configure, examined_client, examined_node, failure, finding, summary, use


@pytest.fixture
def configured(relay: LocalRelay, monkeypatch: pytest.MonkeyPatch) -> LocalRelay:
    """The relay of this machine, which both doctors find in the environment."""
    return configure(monkeypatch, relay)


# Configuration


async def test_no_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a connection string or a namespace, the doctor's hint names where one can come from."""
    clean_environment(monkeypatch)
    failed = failure(await examined_client(tmp_path))
    assert ("configuration", "no connection string is configured", 3) == summary(failed)
    assert "RELAY_CONNECTION_STRING" in failed.hint


async def test_a_ca_file_that_is_not_there(tmp_path: Path, configured: LocalRelay) -> None:
    """A CA file that cannot be read is named, and nothing that needs it is tried."""
    found = await examine_client(
        AccessSettings(ca_file=str(tmp_path / "none.pem")), ranks=None, ports=None, folder=tmp_path
    )
    failed = failure(found)
    assert ("CA file", 3) == (failed.check, failed.exit_code)
    assert "cannot use the CA file" in failed.finding
    assert (Status.SKIPPED, "needs 'CA file'") == finding(found, "configuration")


# The way to the relay


async def test_a_wrong_host(tmp_path: Path, configured: LocalRelay, monkeypatch: pytest.MonkeyPatch) -> None:
    """A misspelled namespace is a name that cannot be resolved."""
    use(monkeypatch, at("contoso.invalid", 443))
    failed = failure(await examined_client(tmp_path))
    assert ("name", "the name contoso.invalid cannot be resolved", 6) == summary(failed)
    assert "check the spelling of the namespace and this machine's DNS" == failed.hint


async def test_a_closed_port(tmp_path: Path, configured: LocalRelay, monkeypatch: pytest.MonkeyPatch) -> None:
    """A port on which no relay listens refuses connections."""
    port = free_port()
    use(monkeypatch, at("localhost", port))
    failed = failure(await examined_client(tmp_path))
    assert ("port", f"cannot connect to localhost:{port}: connection refused", 6) == summary(failed)


async def test_a_node_of_azure_ml_gets_the_outbound_rule(
    tmp_path: Path, configured: LocalRelay, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In an Azure ML job, a network failure may be a missing rule of the managed virtual network."""
    use(monkeypatch, at("localhost", free_port()))
    assert "outbound-rule" not in failure(await examined_node()).hint
    monkeypatch.setenv("AZUREML_RUN_ID", "run_1")
    assert "az ml workspace outbound-rule set" in failure(await examined_node()).hint


async def test_a_proxy_that_refuses(
    tmp_path: Path, tls_directory: Path, configured: LocalRelay, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer of the proxy to CONNECT is shown, and its password is not."""

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    use(monkeypatch, at("contoso.servicebus.windows.net", 443))
    async with local_server(refuse) as (port, _):
        monkeypatch.setenv("HTTPS_PROXY", f"http://user:hidden-word@127.0.0.1:{port}")
        found = await examined_client(tmp_path)
    failed = failure(found)
    assert ("proxy connect", 6) == (failed.check, failed.exit_code)
    assert "the proxy refused the connection to contoso.servicebus.windows.net" in failed.finding
    assert "407" in failed.finding
    assert (Status.PASSED, f"http://127.0.0.1:{port} (HTTPS_PROXY)") == finding(found, "proxy")
    assert "hidden-word" not in repr(found.results)


async def test_a_proxy_that_never_answers(
    tmp_path: Path, configured: LocalRelay, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A proxy that accepts the connection and stays silent has not connected to the relay."""

    async def stay_silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    monkeypatch.setattr(path_to_relay, "ask_server", functools.partial(path_to_relay.ask_server, timeout=0.3))
    use(monkeypatch, at("contoso.servicebus.windows.net", 443))
    async with local_server(stay_silent) as (port, _):
        monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{port}")
        failed = failure(await examined_client(tmp_path))
    proxy = f"through the proxy http://127.0.0.1:{port}"
    assert ("proxy connect", f"contoso.servicebus.windows.net did not answer within 0.3 s {proxy}") == (
        failed.check,
        failed.finding,
    )


async def test_a_proxy_that_shows_a_page(
    tmp_path: Path, configured: LocalRelay, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sign-in page is not a connection to the relay, although its status is 200."""

    async def show(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n<html>sign in</html>")
        await reader.read()
        writer.close()

    use(monkeypatch, at("contoso.servicebus.windows.net", 443))
    async with local_server(show) as (port, _):
        monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{port}")
        failed = failure(await examined_client(tmp_path))
    assert "proxy connect" == failed.check
    assert "proxy reports that it connects to contoso.servicebus.windows.net, but no TLS follows: " in failed.finding
    assert "sign-in page" in failed.hint


async def test_a_proxy_that_does_not_run(
    tmp_path: Path, configured: LocalRelay, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dead proxy is named, and not the relay, which it would reach."""
    port = free_port()
    monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{port}")
    failed = failure(await examined_client(tmp_path))
    assert ("port", f"cannot connect to 127.0.0.1:{port}: connection refused") == (failed.check, failed.finding)
    assert "check HTTPS_PROXY; use NO_PROXY to list the hosts to connect to directly" == failed.hint


async def test_a_proxy_with_an_unusable_address(
    tmp_path: Path, configured: LocalRelay, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A malformed HTTPS_PROXY is a failure of the configuration."""
    monkeypatch.setenv("HTTPS_PROXY", "ftp://proxy.example")
    failed = failure(await examined_client(tmp_path))
    assert ("proxy", "HTTPS_PROXY is unusable", 3) == (failed.check, failed.finding, failed.exit_code)


async def test_a_certificate_of_another_authority(
    tmp_path: Path, configured: LocalRelay, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A certificate of an unknown authority, as of a company's proxy, is shown with its issuer; no token is sent."""
    monkeypatch.delenv("RELAY_CA_FILE")
    found = await examined_client(tmp_path)
    failed = failure(found)
    assert ("certificate", 7) == (failed.check, failed.exit_code)
    assert "is not trusted: " in failed.finding
    assert "issued by 'relay-server private CA', valid until 20" in failed.finding
    assert "the proxy's CA" in failed.hint
    assert (Status.SKIPPED, "needs 'answer'") == finding(found, "Send right")


async def test_a_port_without_tls(tmp_path: Path, configured: LocalRelay, monkeypatch: pytest.MonkeyPatch) -> None:
    """A port that speaks another protocol is a failure of TLS."""

    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"SSH-2.0-OpenSSH_9\r\n")
        await reader.read()

    async with local_server(greet) as (port, _):
        use(monkeypatch, at("localhost", port))
        failed = failure(await examined_client(tmp_path))
    assert ("certificate", 6) == (failed.check, failed.exit_code)
    assert f"TLS with localhost:{port} failed" in failed.finding


async def test_a_login_page(
    tmp_path: Path, tls_directory: Path, configured: LocalRelay, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An answer that is not HTTP comes from something else than a relay."""
    async with impostor(tls_directory, b"please sign in\r\n\r\n") as port:
        use(monkeypatch, at("localhost", port))
        failed = failure(await examined_client(tmp_path))
    assert ("answer", f"localhost:{port} did not respond like a relay", 13) == summary(failed)


async def test_a_relay_out_of_service(
    tmp_path: Path, tls_directory: Path, configured: LocalRelay, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server error is the relay's, or that of a gateway before it."""
    answer = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n"
    async with impostor(tls_directory, answer) as port:
        use(monkeypatch, at("localhost", port))
        failed = failure(await examined_client(tmp_path))
    assert ("answer", 6) == (failed.check, failed.exit_code)
    assert "temporarily unavailable (503)" in failed.finding


@pytest.mark.parametrize(("seconds", "direction"), [(3600, "behind"), (-3600, "ahead of")])
async def test_a_skewed_clock(
    tmp_path: Path,
    tls_directory: Path,
    configured: LocalRelay,
    monkeypatch: pytest.MonkeyPatch,
    seconds: int,
    direction: str,
) -> None:
    """The Date header of the relay shows that this machine's clock is wrong."""
    date = formatdate(time.time() + seconds, usegmt=True)
    answer = f"HTTP/1.1 404 Not Found\r\nDate: {date}\r\nContent-Length: 0\r\n\r\n".encode()
    async with impostor(tls_directory, answer) as port:
        use(monkeypatch, at("localhost", port))
        found = await examined_client(tmp_path)
    status, text = finding(found, "clock")
    assert Status.FAILED is status
    assert f" s {direction} the relay's" in text
    assert 3 == found.exit_code


async def test_a_correct_clock(
    tmp_path: Path, tls_directory: Path, configured: LocalRelay, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A difference of seconds passes."""
    date = formatdate(time.time(), usegmt=True)
    answer = f"HTTP/1.1 404 Not Found\r\nDate: {date}\r\nContent-Length: 0\r\n\r\n".encode()
    async with impostor(tls_directory, answer) as port:
        use(monkeypatch, at("localhost", port))
        status, text = finding(await examined_client(tmp_path), "clock")
    assert Status.PASSED is status
    assert "of the relay's" in text
