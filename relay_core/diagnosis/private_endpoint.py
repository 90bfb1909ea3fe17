"""Check of a private endpoint: whether the relay has a private address here, and the ports that listeners then need.

According to Microsoft's page "Integrate Azure Relay with Azure Private Link", listeners need outbound access to ports
9400-9599 of the private endpoint, in addition to port 443. Which of them a rendezvous uses is not documented, so three
are tried. No service listens on all of them at all times: a refused connection still shows that no firewall drops the
packets.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Sequence

from relay_core.diagnosis.checks import Skipped
from relay_core.errors import RelayUnreachable
from relay_core.net.stages import answers

__all__ = ["PRIVATE_ENDPOINT", "RENDEZVOUS_PORTS", "check_private_endpoint"]

PRIVATE_ENDPOINT = "private endpoint"
RENDEZVOUS_PORTS = (9400, 9500, 9599)
WITHIN = 3.0
"""Timeout in seconds; a private endpoint is in this machine's network or in a peered one."""


async def check_private_endpoint(
    addresses: Sequence[str], *, listens: bool, ports: Sequence[int] = RENDEZVOUS_PORTS, within: float = WITHIN
) -> str:
    """Return the finding: the private address of the namespace or, for a listener, that its rendezvous ports answer.

    Args:
        addresses: The relay's addresses; none behind a proxy.
        listens: Whether this side is a listener, which needs the ports.
        ports: Ports to try.
        within: Seconds for each; they are tried at the same time.

    Raises:
        Skipped: The relay has no private address here.
        RelayUnreachable: No port answered.
    """
    private = next((each for each in addresses if _is_private(each)), None)
    if private is None:
        raise Skipped("the relay has a public address" if addresses else "the proxy resolves the name")
    if ipaddress.ip_address(private).is_loopback:
        raise Skipped(f"{private} is an address of this machine")
    if not listens:
        return f"the relay has the private address {private}"
    return await check_ports(private, ports, within=within)


async def check_ports(address: str, ports: Sequence[int], *, within: float) -> str:
    """Return the finding that an address answers on at least one port, with a connection or a refusal.

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


def _is_private(address: str) -> bool:
    return ipaddress.ip_address(address.partition("%")[0]).is_private
