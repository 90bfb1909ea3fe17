"""Replaces the errors of opening a connection with this project's errors.

The causes are this machine's settings, its network, a proxy, TLS or the server; the `websockets` package, asyncio and
ssl report them with exceptions of their own. Each cause has its own sentence and hint.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import re
import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from http import HTTPStatus

from websockets import exceptions
from websockets.http11 import Response
from websockets.uri import parse_uri

from relay_core.compat import TIMEOUT_ERRORS
from relay_core.errors import ConfigurationError, ProtocolError, RelayDebugError, RelayUnreachable
from relay_core.net.websocket.dialing import chosen_proxy
from relay_core.untrusted_certificates import untrusted_certificate

OPEN_TIMEOUT = 10.0
"""Seconds; some gateways never answer an upgrade request."""
CONNECT_FAILED = "Connect call failed"
"""How asyncio's text for an address begins, in place of the system's reason."""
ERRNO = re.compile(r"\[Errno (\d+)\]")
"""The system's reasons in asyncio's text about several addresses."""


class HandshakeRefused(Exception):
    """The server answered the upgrade request with a status other than 101.

    Args:
        status: HTTP status.
        reason: Reason phrase.
        date: Value of the answer's Date header, or None.
    """

    def __init__(self, status: int, reason: str, date: str | None = None) -> None:
        super().__init__(f"{status} {reason}")
        self.status = status
        self.reason = reason
        self.date = date


class ProxyRefused(RelayUnreachable):
    """The proxy did not connect to the server."""


@dataclass(frozen=True)
class ProxyAddress:
    """The proxy through which a server is reached, without the user name and password for the proxy."""

    scheme: str
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.scheme}://{self.host}:{self.port}"


def proxy_for(url: str) -> ProxyAddress | None:
    """Return the proxy that a connection to `url` uses, or None if it is direct.

    Raises:
        ConfigurationError: The proxy's address is unusable.
    """
    with opening_mapped(url.split("/", 3)[2], OPEN_TIMEOUT):
        proxy = chosen_proxy(parse_uri(url))
        if proxy is None:
            return None
        if proxy.scheme.startswith("socks"):
            importlib.import_module("python_socks")  # only to see whether it is installed
    return ProxyAddress(proxy.scheme, proxy.host, proxy.port)


@contextlib.contextmanager
def opening_mapped(  # noqa: C901, PLR0912 - a table of foreign errors
    host: str, timeout: float, *, may_use_proxy: bool = False
) -> Iterator[None]:
    """Replace exceptions from `websockets`, asyncio and ssl, so that users see only this project's sentences.

    Raises:
        HandshakeRefused: The server answered the upgrade request with a status other than 101.
        RelayDebugError: Any other error.
    """
    # The order matters: certificate, TLS, time-out and name errors are all subclasses of OSError.
    try:
        yield
    except exceptions.InvalidStatus as error:
        response = error.response
        raise HandshakeRefused(response.status_code, response.reason_phrase, response.headers.get("Date")) from None
    except ssl.SSLCertVerificationError as error:
        raise untrusted_certificate(
            host,
            error,
            ca_hint="for a relay-server, specify its ca.pem with --ca-file or RELAY_CA_FILE; behind a TLS-inspecting "
            "proxy, specify the proxy's CA",
        ) from None
    except ssl.SSLError as error:
        raise RelayUnreachable(
            f"TLS with {host} failed: {error.reason or 'unknown reason'}",
            hint="check that the address and port are those of a relay",
        ) from None
    except TIMEOUT_ERRORS:
        proxy = _proxy_text(host) if may_use_proxy else ""
        raise RelayUnreachable(
            f"{host} did not answer within {timeout:g} s{proxy}",
            hint="check the network, HTTPS_PROXY, and the firewall rules for outbound connections to the relay "
            "(Azure: *.servicebus.windows.net, port 443)",
        ) from None
    except socket.gaierror:
        if may_use_proxy and (proxy := _proxy_text(host)):
            raise RelayUnreachable(
                f"cannot connect to {host}{proxy}: the proxy's name cannot be resolved",
                hint="check HTTPS_PROXY, NO_PROXY and this machine's DNS",
            ) from None
        raise RelayUnreachable(
            f"the name {host} cannot be resolved", hint="check the spelling of the namespace and this machine's DNS"
        ) from None
    except exceptions.InvalidProxyStatus as error:
        raise _refused_by_proxy(host, error.response) from None
    except exceptions.ProxyError as error:
        raise ProxyRefused(
            f"the proxy did not connect to {host}: {error}", hint="check HTTPS_PROXY and NO_PROXY"
        ) from None
    except (exceptions.InvalidProxy, exceptions.InvalidURI) as error:
        raise ConfigurationError(
            "HTTPS_PROXY is unusable" if isinstance(error, exceptions.InvalidProxy) else f"invalid address: {host}",
            hint="specify the proxy as a URL, such as http://proxy.example:3128"
            if isinstance(error, exceptions.InvalidProxy)
            else "use a relay address such as contoso.servicebus.windows.net",
        ) from None
    except UnicodeError:  # a name is encoded as IDNA before it is resolved, which checks the length of its labels
        raise ConfigurationError(
            f"invalid host name: {host}" if _is_invalid_name(host) else "invalid host name in HTTPS_PROXY",
            hint="use 1 to 63 characters for each part between dots",
        ) from None
    except ValueError:  # a non-numeric port or an unclosed bracket
        raise ConfigurationError(
            f"the address {host} or HTTPS_PROXY is malformed",
            hint="use a relay address such as contoso.servicebus.windows.net, and a proxy address such as "
            "http://proxy.example:3128",
        ) from None
    except ImportError:
        raise ConfigurationError(
            "HTTPS_PROXY names a SOCKS proxy, which needs a package that is not installed",
            hint="run: pip install 'python-socks[asyncio]', or use a proxy such as http://proxy.example:3128",
        ) from None
    except OSError as error:
        proxy = _proxy_text(host) if may_use_proxy else ""
        check_relay = "check that the relay is running and that the network allows outgoing connections to it"
        raise RelayUnreachable(
            f"cannot connect to {host}{proxy}: {_os_reason(error)}",
            hint="check HTTPS_PROXY and NO_PROXY, and make sure that the proxy is running" if proxy else check_relay,
        ) from None
    except (exceptions.InvalidMessage, exceptions.InvalidHandshake, EOFError) as error:
        if isinstance(error, EOFError) or isinstance(error.__cause__, (EOFError, ConnectionError)):
            raise RelayUnreachable(
                f"{host} closed the connection before answering",
                hint="retry; if the error persists, check whether a firewall or proxy is closing the connection",
            ) from None
        raise ProtocolError(
            f"{host} did not respond like a relay",
            hint="check the address; the response may come from a proxy's login page",
            elsewhere=True,
        ) from None
    except Exception as error:  # noqa: BLE001 - the last row of the table
        raise RelayDebugError(
            f"cannot connect to {host}: unexpected {type(error).__name__}",
            hint="check the address, HTTPS_PROXY and the installed package versions",
        ) from None


def _refused_by_proxy(host: str, response: Response) -> ProxyRefused:
    """Return the error for an answer to CONNECT that is not 2xx; the status and the offered schemes decide the hint."""
    status, reason = response.status_code, response.reason_phrase
    schemes = [value.split()[0] for value in response.headers.get_all("Proxy-Authenticate") if value.split()]
    offered = f"; it accepts {' and '.join(dict.fromkeys(schemes))}" if schemes else ""
    return ProxyRefused(
        f"the proxy refused the connection to {host}: HTTP {status} {reason}".rstrip() + offered,
        hint=_proxy_hint(host, status, {scheme.lower() for scheme in schemes}),
    )


def _proxy_hint(host: str, status: int, schemes: set[str]) -> str:
    if status == HTTPStatus.PROXY_AUTHENTICATION_REQUIRED:
        return _sign_in_hint(host, schemes)
    if status == HTTPStatus.FORBIDDEN:
        return f"the proxy's rules do not allow this host; ask its operator to allow CONNECT to {host}"
    if 300 <= status < 400:
        return "the proxy answers with a page, as for a sign-in: open a web page on that machine and sign in"
    if status in (HTTPStatus.BAD_GATEWAY, HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.GATEWAY_TIMEOUT):
        return "the proxy cannot reach the relay: check that the relay is running, and the proxy's own name resolution"
    return "check HTTPS_PROXY and NO_PROXY"


def _sign_in_hint(host: str, schemes: set[str]) -> str:
    if schemes and "basic" not in schemes:
        return (
            "relay-debug signs in to a proxy with Basic only: run a local proxy that knows the other schemes, such as "
            "px or cntlm, and set HTTPS_PROXY to its address, or list the relay in NO_PROXY if it can be reached "
            "directly"
        )
    if _has_password(host):
        return (
            "the proxy does not accept the user name and password in HTTPS_PROXY; characters such as @ and : in them "
            "must be percent-encoded"
        )
    return "add the user name and password to HTTPS_PROXY: http://user:password@proxy.example:3128"


def _has_password(host: str) -> bool:
    proxy = chosen_proxy(parse_uri(f"wss://{host}"))
    return proxy is not None and proxy.username is not None


def _proxy_text(host: str) -> str:
    """Return ` through the proxy http://proxy.example:3128`, or "" if connections to a host are direct."""
    proxy = proxy_for(f"wss://{host}")
    return f" through the proxy {proxy}" if proxy is not None else ""


def _is_invalid_name(host: str) -> bool:
    try:
        host.partition(":")[0].encode("idna")
    except UnicodeError:
        return True
    return False


def _os_reason(error: OSError) -> str:
    """Return the reason without the list of errors that asyncio appends, one for each address that it tried."""
    if isinstance(error, ConnectionRefusedError) or "refused" in str(error).lower():
        return "connection refused"
    if isinstance(error, ConnectionResetError):
        # One text, because a peer that closes connections before TLS causes either error, and each new text is logged.
        return "the connection was closed"
    text = error.strerror or ""
    if not text or text.startswith(CONNECT_FAILED):  # asyncio's text contains the addresses instead of the reason
        codes = [error.errno] if error.errno else map(int, ERRNO.findall(str(error)))
        text = " and ".join(dict.fromkeys(map(os.strerror, codes)))
    return (text or type(error).__name__).lower()
