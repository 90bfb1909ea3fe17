"""Facts about connection strings."""

import base64
import contextlib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay_core.errors import ConfigurationError
from relay_core.hyco.address import Endpoint
from relay_core.hyco.connection_string import ConnectionString

KEY = "bm90LWEtcmVhbC1rZXktb25seS1mb3ItdGVzdHM="
TUNNEL_KEY = base64.b64encode(bytes(range(32))).decode()
ENDPOINT = "Endpoint=sb://contoso.servicebus.windows.net/"
FULL = f"{ENDPOINT};SharedAccessKeyName=send;SharedAccessKey={KEY};EntityPath=myhc"


def test_the_portal_form() -> None:
    """The string that the portal shows gives host, rule, key and hybrid connection."""
    parsed = ConnectionString.parse(FULL)
    assert ConnectionString("contoso.servicebus.windows.net", 443, "myhc", "send", KEY) == parsed


@pytest.mark.parametrize(
    ("text", "field", "value"),
    [
        (f"{ENDPOINT};SharedAccessKeyName=k;SharedAccessKey=a=b==", "key", "a=b=="),
        (f" {FULL};\n", "entity_path", "myhc"),
        (f"entitypath=myhc;ENDPOINT=sb://h:8443/;sharedaccesskeyname=k;SharedAccessKey={KEY}", "port", 8443),
        ("Endpoint=sb://LocalHost:8443", "host", "localhost"),
        ("Endpoint=contoso.servicebus.windows.net", "host", "contoso.servicebus.windows.net"),
        ("Endpoint=sb://[::1]:8443", "host", "::1"),
        (f"{ENDPOINT};EntityPath=a/b", "entity_path", "a/b"),
        (f"{ENDPOINT};EntityPath=/myhc/", "entity_path", "myhc"),
        (f"{ENDPOINT};EntityPath=", "entity_path", None),
        (f"{ENDPOINT};OperationTimeout=00:01:00", "host", "contoso.servicebus.windows.net"),
        (f"{ENDPOINT};Authentication=Managed Identity", "managed_identity", True),
        (f"{ENDPOINT};Authentication=managedidentity", "managed_identity", True),
        (f"{ENDPOINT};TunnelKey={TUNNEL_KEY}", "tunnel_key", bytes(range(32))),
        (f"{ENDPOINT};EntityPath=myhc:3", "family_size", 3),
        (f"{ENDPOINT};EntityPath=myhc:3", "entity_path", "myhc"),
        (f"{FULL};FamilyKeys=a=,b=", "family_keys", ("a=", "b=")),
        (f"{FULL};FamilyKeys=a=,b=", "family_size", 3),
        (FULL, "family_size", None),
        (
            f"{ENDPOINT};SharedAccessSignature=SharedAccessSignature sr=x&sig=y%3D&se=1&skn=k",
            "signature",
            "SharedAccessSignature sr=x&sig=y%3D&se=1&skn=k",
        ),
    ],
)
def test_accepted_forms(text: str, field: str, value: object) -> None:
    """Every form in use is read, keys in any case and order, values to the letter."""
    assert value == getattr(ConnectionString.parse(text), field)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "no Endpoint"),
        (KEY, "unknown or malformed field"),
        ("EntityPath=myhc", "no Endpoint"),
        ("Endpoint=", "not a valid address"),
        ("Endpoint=sb://h:port", "not a valid address"),
        ("Endpoint=sb://h:0", "not a valid address"),
        ("Endpoint=sb://[::1", "not a valid address"),
        (f"{ENDPOINT};{ENDPOINT}", "Endpoint twice"),
        (f"{ENDPOINT};Colour=blue", "unknown or malformed field"),
        (f"{ENDPOINT};SharedAccessKeyName=k", "no SharedAccessKey"),
        (f"{ENDPOINT};SharedAccessKey={KEY}", "no SharedAccessKeyName"),
        (f"{FULL};SharedAccessSignature=SharedAccessSignature sr=x", "more than one"),
        (f"{FULL};Authentication=Managed Identity", "more than one"),
        (f"{ENDPOINT};Authentication=Password", "not 'Managed Identity'"),
        (f"{ENDPOINT};TunnelKey=short", "TunnelKey is not 32 bytes"),
        (f"{ENDPOINT};TunnelKey=!!!!", "TunnelKey is not 32 bytes"),
        (f"{ENDPOINT};SharedAccessKeyName=k;SharedAccessKey={'x' * 257}", "longer than 256"),
    ],
)
def test_refused_forms(text: str, sentence: str) -> None:
    """A malformed string is refused with its field named, a hint, and never a value."""
    with pytest.raises(ConfigurationError) as caught:
        ConnectionString.parse(text)
    assert sentence in caught.value.sentence
    assert caught.value.hint
    assert KEY not in str(caught.value)


@given(st.text())
def test_any_text_gives_a_value_or_a_configuration_error(text: str) -> None:
    """No text makes parsing fail in another way."""
    with contextlib.suppress(ConfigurationError):
        ConnectionString.parse(text)


def test_repr_shows_no_secret() -> None:
    """The repr shows address and rule, without keys, signature or tunnel key."""
    given = ConnectionString.parse(f"{FULL};TunnelKey={TUNNEL_KEY}")
    parsed = replace(given, signature="SharedAccessSignature sr=secret", family_keys=("secret",))
    assert "host='contoso.servicebus.windows.net', port=443, entity_path='myhc', key_name=" in repr(parsed)
    for secret in ("secret", KEY, repr(parsed.tunnel_key)):
        assert secret not in repr(parsed)


def test_with_entity_names_the_hybrid_connection() -> None:
    """A namespace-level string serves any hybrid connection."""
    parsed = ConnectionString.parse(f"{ENDPOINT};SharedAccessKeyName=k;SharedAccessKey={KEY}").with_entity("myhc")
    assert Endpoint("contoso.servicebus.windows.net", 443, "myhc") == parsed.endpoint()


def test_with_entity_ignores_case() -> None:
    """Hybrid connection names are case-insensitive."""
    assert ConnectionString.parse(FULL).with_entity("MyHC").entity_path == "MyHC"


def test_with_entity_refuses_another_name() -> None:
    """A string for one hybrid connection is not used for another."""
    with pytest.raises(ConfigurationError, match="is for hybrid connection 'myhc', not for 'other'"):
        ConnectionString.parse(FULL).with_entity("other")


def test_endpoint_needs_a_name() -> None:
    """Without a hybrid connection the endpoint is unknown, and the hint explains how to name one."""
    with pytest.raises(ConfigurationError, match="no hybrid connection given.*--hc"):
        ConnectionString.parse(ENDPOINT).endpoint()


@pytest.mark.parametrize(
    ("text", "hc", "size"),
    [
        (FULL, "myhc", 1),
        (FULL, "myhc:4", 4),
        (f"{FULL};FamilyKeys=a,b", "MYHC", 3),
        (f"{FULL};FamilyKeys=a,b", "myhc:3", 3),
        (f"{ENDPOINT};SharedAccessKeyName=k;SharedAccessKey=a", "myhc:2", 2),
        (FULL.replace("myhc", "myhc:5"), "myhc", 5),
    ],
)
def test_the_size_of_a_family(text: str, hc: str, size: int) -> None:
    """It is in --hc, in EntityPath, or the number of keys."""
    assert size == ConnectionString.parse(text).with_entity(hc).endpoint().size


@pytest.mark.parametrize(
    ("text", "hc"),
    [
        (f"{FULL};FamilyKeys=a,b", "myhc:4"),
        (f"{FULL.replace('myhc', 'myhc:2')};FamilyKeys=a,b", "myhc"),
        (f"{FULL};FamilyKeys=a,,b", "myhc"),
        (f"{ENDPOINT};EntityPath=myhc;FamilyKeys=a", "myhc"),
        (f"{FULL};FamilyKeys={','.join('a' * 200)}", "myhc"),
        (FULL.replace("myhc", "myhc:none"), "myhc"),
    ],
)
def test_family_keys_that_do_not_fit(text: str, hc: str) -> None:
    """Keys for another number of hybrid connections, empty ones and keys without a first one are refused."""
    with pytest.raises(ConfigurationError):
        ConnectionString.parse(text).with_entity(hc)


@pytest.mark.parametrize("quote", ["'", '"'])
def test_quotes_around_the_string(quote: str) -> None:
    """Quotes that were saved together with the string are ignored; a single one is not."""
    text = "Endpoint=sb://ns.servicebus.windows.net/;EntityPath=myhc"
    assert ConnectionString.parse(f" {quote}{text}{quote}\n") == ConnectionString.parse(text)
    with pytest.raises(ConfigurationError):
        ConnectionString.parse(f"{quote}{text}")
