"""Facts about the errors for what stands between this machine and a relay; each answer comes from a real proxy port."""

import asyncio
import errno

import pytest

from relay_core.errors import RelayUnreachable
from relay_core.net.relay_tls import client_tls
from relay_core.net.websocket.handshake import open_websocket
from relay_core.net.websocket.opening_errors import ProxyRefused, opening_mapped
from tests.support.machine.streams import local_server

HOST = "contoso.servicebus.windows.net"


async def refusal(monkeypatch: pytest.MonkeyPatch, status: str, *headers: str, user: str = "") -> ProxyRefused:
    """Return the error if a proxy answers CONNECT with this."""

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        lines = [f"HTTP/1.1 {status}", *headers, "Content-Length: 0", "", ""]
        writer.write("\r\n".join(lines).encode())
        writer.close()

    for name in ("https_proxy", "NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    async with local_server(refuse) as (port, _):
        monkeypatch.setenv("HTTPS_PROXY", f"http://{user}127.0.0.1:{port}")
        with pytest.raises(ProxyRefused) as caught:
            await open_websocket(f"wss://{HOST}/x?y", tls=client_tls(environ={}))
    return caught.value


SIGN_IN = "407 Proxy Authentication Required"


async def test_a_password_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy that offers Basic gets a user name and a password from HTTPS_PROXY."""
    error = await refusal(
        monkeypatch, SIGN_IN, "Proxy-Authenticate: Negotiate", 'Proxy-Authenticate: Basic realm="a b"'
    )
    assert (
        f"the proxy refused the connection to {HOST}: HTTP {SIGN_IN}; it accepts Negotiate and Basic" == error.sentence
    )
    assert "add the user name and password to HTTPS_PROXY" in error.hint


async def test_a_wrong_password(monkeypatch: pytest.MonkeyPatch) -> None:
    """A password that is refused is not asked for again, and not shown."""
    error = await refusal(monkeypatch, SIGN_IN, "Proxy-Authenticate: Basic", user="ann:hidden-word@")
    assert "does not accept the user name and password" in error.hint
    assert "hidden-word" not in str(error)


async def test_a_scheme_that_is_not_supported(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where only Windows schemes are offered, a password does not help, and a local proxy does."""
    error = await refusal(monkeypatch, SIGN_IN, "Proxy-Authenticate: NTLM", "Proxy-Authenticate: Negotiate")
    assert "it accepts NTLM and Negotiate" in error.sentence
    assert "px or cntlm" in error.hint


async def test_a_scheme_that_is_not_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A 407 without a scheme gets the usual hint."""
    error = await refusal(monkeypatch, SIGN_IN)
    assert f"HTTP {SIGN_IN}" in error.sentence
    assert "it accepts" not in error.sentence
    assert "add the user name" in error.hint


@pytest.mark.parametrize(
    ("status", "hint"),
    [
        ("403 Forbidden", f"ask its operator to allow CONNECT to {HOST}"),
        ("302 Found", "sign in"),
        ("502 Bad Gateway", "the proxy cannot reach the relay"),
        ("418 I am a teapot", "check HTTPS_PROXY and NO_PROXY"),
    ],
)
async def test_other_statuses(monkeypatch: pytest.MonkeyPatch, status: str, hint: str) -> None:
    """If the reason is a rule of the proxy, the hint does not advise to check the proxy's address."""
    error = await refusal(monkeypatch, status)
    assert f"HTTP {status}" in error.sentence
    assert hint in error.hint


UNREACHABLE = "Connect call failed ('192.0.2.1', 443)"


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENETUNREACH, UNREACHABLE),
        OSError(f"Multiple exceptions: [Errno {errno.ENETUNREACH}] {UNREACHABLE}, [Errno {errno.ENETUNREACH}] ..."),
    ],
)
def test_the_systems_reason(monkeypatch: pytest.MonkeyPatch, error: OSError) -> None:
    """Where asyncio's text has the addresses instead of the reason, the system's reason is shown, once."""
    monkeypatch.setenv("NO_PROXY", "*")
    with pytest.raises(RelayUnreachable) as caught, opening_mapped(HOST, 10):
        raise error
    assert f"cannot connect to {HOST}: network is unreachable" == caught.value.sentence
