"""Facts about the protocol's addresses."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay_core.hyco.address import Endpoint, parse_parameters, reject_url, strip_parameters

AZURE = Endpoint("contoso.servicebus.windows.net", 443, "my/hc")


def test_listen_url() -> None:
    """The listener's URL names the action and the listener's id."""
    expected = "wss://contoso.servicebus.windows.net/$hc/my/hc?sb-hc-action=listen&sb-hc-id=GUID"
    assert expected == AZURE.listen_url("GUID")


@pytest.mark.parametrize(
    ("endpoint", "url"),
    [
        (AZURE, "wss://contoso.servicebus.windows.net/$hc/my/hc?sb-hc-action=connect"),
        (Endpoint("localhost", 8443, "hc"), "wss://localhost:8443/$hc/hc?sb-hc-action=connect"),
        (Endpoint("::1", 8443, "hc"), "wss://[::1]:8443/$hc/hc?sb-hc-action=connect"),
        (Endpoint("h", 443, "a b"), "wss://h/$hc/a%20b?sb-hc-action=connect"),
    ],
)
def test_connect_url(endpoint: Endpoint, url: str) -> None:
    """The sender's URL carries host, port unless 443, and the encoded path."""
    assert url == endpoint.connect_url()


def test_audience_has_no_port() -> None:
    """The audience of a token is host and path alone."""
    assert Endpoint("localhost", 8443, "hc").audience == "http://localhost/hc"


def test_reject_url_keeps_the_address() -> None:
    """A refusal is the accept address, verbatim, with status and encoded text added."""
    address = "wss://g1/$hc/hc?sb-hc-action=accept&sb-hc-id=1_G1"
    expected = f"{address}&sb-hc-statusCode=421&sb-hc-statusDescription=not%20here%26now"
    assert expected == reject_url(address, status=421, reason="not here&now")


@pytest.mark.parametrize(
    ("query", "kept"),
    [
        ("sb-hc-action=connect", ""),
        ("app=1&sb-hc-action=connect", "app=1"),
        ("app=1&&SB-HC-Id=x&b=2&", "app=1&&b=2&"),
        ("?sb-hc-undefined", "?sb-hc-undefined"),
        ("sb-hc-undefined&sb-hc-token=t&a", "sb-hc-undefined&a"),
    ],
)
def test_strip_parameters(query: str, kept: str) -> None:
    """The protocol's own parameters go; all other bytes stay in order."""
    assert kept == strip_parameters(query)


def test_parse_parameters_decodes_plus_as_blank() -> None:
    """A token's blank may be written `+` or `%20`."""
    query = "a=1&SB-HC-Token=SharedAccessSignature+sr%3Dx&sb-hc-action=connect"
    assert {"sb-hc-token": "SharedAccessSignature sr=x", "sb-hc-action": "connect"} == parse_parameters(query)


@given(st.text(alphabet="abc=&sb-hc-?%+"))
def test_parameters_are_either_kept_or_ours(query: str) -> None:
    """Stripping twice changes nothing more, and what is left holds no parameter of ours."""
    kept = strip_parameters(query)
    assert kept == strip_parameters(kept)
    assert {} == parse_parameters(kept)


def test_the_hybrid_connections_of_a_family() -> None:
    """They have numbered names, keep the relay's address, and messages show the name of the family."""
    siblings = Endpoint("localhost", 8443, "team/alice", 3).siblings
    assert ["team/alice", "team/alice-1", "team/alice-2"] == [sibling.path for sibling in siblings]
    assert {("localhost", 8443, 1, "team/alice")} == {(one.host, one.port, one.size, one.name) for one in siblings}


def test_a_single_hybrid_connection_is_its_only_sibling() -> None:
    """A hybrid connection without a size is not a family."""
    single = Endpoint("localhost", 8443, "alice")
    assert (single,) == single.siblings
    assert "alice" == single.name
