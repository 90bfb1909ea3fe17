"""Facts about the `Host` header of requests to a port of this machine."""

import pytest

from relay_core.net.loopback import is_rebound

OWN = [
    None,
    "127.0.0.1:9091",
    "127.0.0.1",
    "localhost",
    "LOCALHOST:9091",
    "[::1]:9091",
    "[::1]",
    "10.0.0.4:9091",
    "node-0:9091",
]
FOREIGN = ["evil.example:9091", "localhost.evil.example", "127.0.0.1.evil.example", "[evil.example]", "a.b,localhost"]


@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.0.2", "::1"])
def test_only_local_names_reach_a_loopback_address(address: str) -> None:
    """Only IP addresses and names without a domain are accepted, because no page has such a name."""
    assert [] == [host for host in OWN if is_rebound(host, address)]
    assert FOREIGN == [host for host in FOREIGN if is_rebound(host, address)]


@pytest.mark.parametrize("address", ["10.0.0.4", "fe80::1%eth0"])
def test_other_addresses_have_any_name(address: str) -> None:
    """In a cluster, a supervisor uses the name of a service."""
    assert [] == [host for host in (*OWN, *FOREIGN) if is_rebound(host, address)]
