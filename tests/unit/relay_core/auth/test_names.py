"""Facts about how namespaces and vaults may be written."""

import pytest

from relay_core.auth.key_vault import parse_vault_url
from relay_core.errors import ConfigurationError
from relay_core.hyco.address import parse_namespace


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("contoso", ("contoso.servicebus.windows.net", 443)),
        ("Contoso-Debug ", ("contoso-debug.servicebus.windows.net", 443)),
        ("contoso.servicebus.usgovcloudapi.net", ("contoso.servicebus.usgovcloudapi.net", 443)),
        ("sb://contoso.servicebus.windows.net/", ("contoso.servicebus.windows.net", 443)),
        ("localhost", ("localhost", 443)),
        ("localhost:8443", ("localhost", 8443)),
        ("[::1]:8443", ("::1", 8443)),
    ],
)
def test_namespaces(text: str, expected: tuple[str, int]) -> None:
    """A bare name is one of the public cloud; anything else is taken as a host."""
    assert expected == parse_namespace(text)


@pytest.mark.parametrize(
    "text", ["", " ", "contoso:port", "sb://contoso/myhc", "a b:c", "host?x=1", "sb://u@host", "h:0"]
)
def test_texts_that_are_no_namespace(text: str) -> None:
    """Anything else is refused with an example."""
    with pytest.raises(ConfigurationError, match=r"invalid namespace: .*contoso\.servicebus\.windows\.net"):
        parse_namespace(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("contoso-kv", "https://contoso-kv.vault.azure.net"),
        ("https://contoso-kv.vault.azure.net/", "https://contoso-kv.vault.azure.net"),
        ("HTTPS://Contoso-KV.vault.azure.cn", "https://contoso-kv.vault.azure.cn"),
        ("https://localhost:8443", "https://localhost:8443"),
    ],
)
def test_vaults(text: str, expected: str) -> None:
    """A vault may be given by its URL, or by its name in the public cloud."""
    assert expected == parse_vault_url(text)


@pytest.mark.parametrize(
    "text",
    ["", "a b", "http://contoso-kv.vault.azure.net", "contoso-kv.vault.azure.net", "https://x/secrets/y", "https://"],
)
def test_texts_that_are_no_vault(text: str) -> None:
    """Anything else is refused, plain HTTP above all."""
    with pytest.raises(ConfigurationError, match=r"address is invalid.*https://contoso-kv\.vault\.azure\.net/"):
        parse_vault_url(text)
