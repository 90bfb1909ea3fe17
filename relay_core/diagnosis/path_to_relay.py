"""Checks of the path to the relay that need no credentials: proxy, name, port, certificate, answer and clock.

Each stage uses the code of real connections. One opening handshake without a token provides the last four results.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
import ssl
import time
from collections.abc import Iterator, Sequence
from email.utils import parsedate_to_datetime

from cryptography import x509
from cryptography.x509.oid import NameOID

from relay_core.access_settings import AccessSettings, Side
from relay_core.auth import Access
from relay_core.compat import TIMEOUT_ERRORS, timeout
from relay_core.diagnosis.checks import TOKEN, TOKEN_LIMIT, AccessChecks, Examination, Skipped, check_token
from relay_core.errors import ConfigurationError, RelayDebugError, RelayUnreachable, UntrustedCertificate
from relay_core.hyco.address import Endpoint
from relay_core.hyco.outcome import refused_listen
from relay_core.net.relay_tls import unverified_tls
from relay_core.net.tasks import close_writer
from relay_core.net.websocket.dialing import TLS
from relay_core.net.websocket.handshake import ServerAnswer, ask_server
from relay_core.net.websocket.opening_errors import OPEN_TIMEOUT, ProxyAddress, ProxyRefused, opening_mapped, proxy_for

# The first stages of a connection on their own, for diagnosis: name resolution and TCP.
#
# Their errors are those of `relay_core.net.websocket.handshake`, where one call performs all stages.


async def resolve(host: str, port: int, *, within: float = OPEN_TIMEOUT) -> list[str]:
    """Return the addresses of a host in the order in which they are tried.

    Raises:
        RelayUnreachable: The name has no address, or was not resolved within `within` seconds.
    """
    with opening_mapped(host, within):
        async with timeout(within):
            found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


async def connect_tcp(host: str, port: int, *, within: float = OPEN_TIMEOUT) -> str:
    """Connect to a TCP port, close the connection, and return the address that accepted it.

    Raises:
        RelayUnreachable: No address accepted a connection within `within` seconds.
    """
    with opening_mapped(f"{host}:{port}", within):
        async with timeout(within):
            return await _connect_and_close(host, port)


async def answers(address: str, port: int, *, within: float) -> bool:
    """Return whether an address accepts or refuses a TCP connection, instead of leaving it unanswered."""
    try:
        async with timeout(within):
            await _connect_and_close(address, port)
    except ConnectionRefusedError:
        return True
    except (*TIMEOUT_ERRORS, OSError):
        return False
    return True


async def _connect_and_close(host: str, port: int) -> str:
    """Return the address that accepted a TCP connection, which is closed."""
    _, writer = await asyncio.open_connection(host, port)
    address = str(writer.get_extra_info("peername")[0])
    await close_writer(writer)
    return address


PROXY, NAME, PORT, TUNNEL = "proxy", "name", "port", "proxy connect"
CERTIFICATE, ANSWER, CLOCK = "certificate", "answer", "clock"
MAX_SKEW = 300.0
"""Maximum difference in seconds between this machine's clock and the relay's. Validators of Entra ID tokens usually
allow five minutes.
"""


class ServerChecks:
    """Checks whether and how this machine reaches a relay.

    Args:
        endpoint: The hybrid connection; no connection to it is made.
        tls: Verifies the certificate of the relay.
        network_hint: Appended to the hints of network failures, or "".
    """

    def __init__(self, endpoint: Endpoint, tls: ssl.SSLContext, *, network_hint: str = "") -> None:
        self.skew = 0.0
        """Seconds by which the relay's clock is ahead of this machine's; 0 if the relay's answer did not contain a
        time.
        """
        self.addresses: list[str] = []
        """The relay's addresses; none if a proxy resolves its name."""
        self._endpoint = endpoint
        self._tls = tls
        self._network_hint = network_hint
        self._proxy: ProxyAddress | None = None
        self._answer = ServerAnswer()
        self._error: RelayDebugError | None = None
        """Why the opening handshake failed."""

    async def run(self, examination: Examination) -> None:
        """Run the checks in order."""
        await examination.check(PROXY, self._find_proxy)
        await examination.check(NAME, self._resolve, after=[PROXY])
        await examination.check(PORT, self._connect, after=[PROXY, NAME])
        await examination.check(TUNNEL, self._connect_through_proxy, after=[PORT])
        await examination.check(CERTIFICATE, self._verify_certificate, after=[PORT, TUNNEL])
        await examination.check(ANSWER, self._read_answer, after=[CERTIFICATE])
        await examination.check(CLOCK, self._compare_clocks, after=[ANSWER])

    @property
    def _next_hop(self) -> tuple[str, int]:
        """Host and port to which this machine connects."""
        if self._proxy is not None:
            return self._proxy.host, self._proxy.port
        return self._endpoint.host, self._endpoint.port

    async def _find_proxy(self) -> str:
        self._proxy = proxy_for(self._endpoint.root_url)
        if self._proxy is None:
            raise Skipped("no proxy: HTTPS_PROXY is not set, or NO_PROXY excludes the relay")
        return f"{self._proxy} (HTTPS_PROXY)"

    async def _resolve(self) -> str:
        host, port = self._next_hop
        with self._hinted():
            found = await resolve(host, port)
        if self._proxy is None:
            self.addresses = found
        return f"{host} resolves to {', '.join(found)}" if found != [host] else f"{host} is an IP address"

    async def _connect(self) -> str:
        host, port = self._next_hop
        with self._hinted():
            address = await connect_tcp(host, port)
        return f"{address} accepts connections on port {port}"

    @contextlib.contextmanager
    def _hinted(self) -> Iterator[None]:
        """Say in an error where to look: at the proxy, or at the network if there is none."""
        try:
            yield
        except RelayUnreachable as error:
            hint = "; ".join(filter(None, (error.hint, self._network_hint)))
            if self._proxy is not None:
                hint = "check HTTPS_PROXY; use NO_PROXY to list the hosts to connect to directly"
            raise RelayUnreachable(error.sentence, hint=hint) from None

    async def _connect_through_proxy(self) -> str:
        if self._proxy is None:
            raise Skipped("no proxy")
        await self._ask()
        if self._error is not None and not self._answer.steps.has_reached(TLS):
            raise self._error
        speaks_tls = self._answer.certificate is not None or isinstance(self._error, UntrustedCertificate)
        if self._error is not None and not speaks_tls:
            raise ProxyRefused(
                f"the proxy reports that it connects to {self._endpoint.host}, but no TLS follows: "
                f"{self._error.sentence}",
                hint="it may show a sign-in page, or its rules may forbid this host: open a web page on this machine, "
                f"and ask the proxy's operator to allow {self._endpoint.host}:{self._endpoint.port}",
            )
        return f"the proxy connects to {self._endpoint.host}:{self._endpoint.port}"

    async def _ask(self) -> None:
        """Perform the opening handshake once, and keep what it shows for the checks of its stages."""
        try:
            await ask_server(self._endpoint.root_url, self._answer, tls=self._tls)
        except RelayDebugError as error:
            self._error = error

    async def _verify_certificate(self) -> str:
        if self._proxy is None:
            await self._ask()
        if isinstance(self._error, UntrustedCertificate):
            issuer = await self._untrusted_issuer()
            raise UntrustedCertificate(f"{self._error.sentence}; {issuer}", hint=self._error.hint)
        if self._answer.certificate is None:
            raise self._error or RelayUnreachable(f"{self._endpoint.host} did not establish TLS")
        return _describe(self._answer.certificate)

    async def _untrusted_issuer(self) -> str:
        """Return the issuer of an untrusted certificate, from a second handshake that accepts any certificate."""
        answer = ServerAnswer()
        with contextlib.suppress(RelayDebugError):  # the certificate may have been shown before the failure
            await ask_server(self._endpoint.root_url, answer, tls=unverified_tls())
        return "its issuer could not be determined" if answer.certificate is None else _describe(answer.certificate)

    async def _read_answer(self) -> str:
        if self._error is not None:
            raise self._error
        status = self._answer.status or 0
        if status >= 500:
            raise refused_listen(status, "", self._endpoint)
        return f"HTTP status {status} (the request had no token); {self._answer.steps}"

    async def _compare_clocks(self) -> str:
        try:
            theirs = parsedate_to_datetime(self._answer.date or "").timestamp()
        except ValueError:
            raise Skipped("the answer has no valid Date header") from None
        self.skew = theirs - time.time()
        if abs(self.skew) > MAX_SKEW:
            direction = "behind" if self.skew > 0 else "ahead of"
            raise ConfigurationError(
                f"this machine's clock is {abs(self.skew):.0f} s {direction} the relay's",
                hint="synchronise it (NTP); until then, tokens are refused as expired or not yet valid",
            )
        return f"within {abs(self.skew) + 1:.0f} s of the relay's"  # the header has whole seconds


def _describe(certificate: bytes) -> str:
    """Return the issuer and the expiry date of a certificate."""
    parsed = x509.load_der_x509_certificate(certificate)
    named = parsed.issuer.get_attributes_for_oid(NameOID.COMMON_NAME) or list(parsed.issuer)
    issuer = str(named[0].value) if named else "an unnamed issuer"
    return f"issued by '{issuer}', valid until {parsed.not_valid_after_utc:%Y-%m-%d}"


# Check of a private endpoint: whether the relay has a private address here, and the ports that listeners then need.
#
# According to Microsoft's page "Integrate Azure Relay with Azure Private Link", listeners need outbound access to ports
# 9400-9599 of the private endpoint, in addition to port 443. Which of them a rendezvous uses is not documented, so
# three are tried. No service listens on all of them at all times: a refused connection still shows that no firewall
# drops the packets.

PRIVATE_ENDPOINT = "private endpoint"
RENDEZVOUS_PORTS = (9400, 9500, 9599)
WITHIN = 3.0
"""Timeout in seconds; a private endpoint is in this machine's network or in a peered one."""


async def check_private_endpoint(addresses: Sequence[str], *, listens: bool) -> str:
    """Return the finding: the private address of the namespace or, for a listener, that its rendezvous ports answer.

    Args:
        addresses: The relay's addresses; none behind a proxy.
        listens: Whether this side is a listener, which needs the ports.

    Raises:
        Skipped: The relay has no private address here.
        RelayUnreachable: No port answered.
    """
    private = next((each for each in addresses if ipaddress.ip_address(each.partition("%")[0]).is_private), None)
    if private is None:
        raise Skipped("the relay has a public address" if addresses else "the proxy resolves the name")
    if ipaddress.ip_address(private).is_loopback:
        raise Skipped(f"{private} is an address of this machine")
    if not listens:
        return f"the relay has the private address {private}"
    return await check_ports(private, RENDEZVOUS_PORTS, within=WITHIN)


async def check_ports(address: str, ports: Sequence[int], *, within: float) -> str:
    """Return the finding that an address answers on at least one port, with a connection or a refusal.

    Args:
        address: A private address of the relay.
        ports: Ports to try.
        within: Seconds for each; they are tried at the same time.

    Raises:
        RelayUnreachable: No port answered.
    """
    answered = await asyncio.gather(*(answers(address, port, within=within) for port in ports))
    if not any(answered):
        raise RelayUnreachable(
            f"the private endpoint {address} does not answer on ports {', '.join(map(str, ports))}",
            hint="allow outbound TCP 9400-9599 from this subnet to the private endpoint, in addition to 443",
        )
    return f"the private endpoint {address} answers on the rendezvous ports"


# All checks that agent and client have in common, in order.


async def examine_relay(
    examination: Examination, settings: AccessSettings, side: Side, *, network_hint: str = ""
) -> tuple[Access, ssl.SSLContext] | None:
    """Check configuration, path to the relay and token; return the access and TLS context, if they are usable.

    Args:
        examination: Receives the results.
        settings: Explicit settings; all others come from environment variables.
        side: An agent listens on the hybrid connection and needs more ports.
        network_hint: As for `ServerChecks`.
    """
    configured = AccessChecks(settings, side)
    await configured.run(examination)
    access, tls = configured.access, configured.tls
    if access is None or tls is None:
        return None
    server = ServerChecks(access.endpoint, tls, network_hint=network_hint)
    await server.run(examination)
    listens = side == "agent"
    await examination.check(
        PRIVATE_ENDPOINT, lambda: check_private_endpoint(server.addresses, listens=listens), after=[PORT]
    )
    await examination.check(TOKEN, lambda: check_token(access, server.skew), limit=TOKEN_LIMIT)
    return access, tls
