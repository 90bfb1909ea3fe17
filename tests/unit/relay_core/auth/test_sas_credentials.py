"""Facts about credentials that come from a connection string."""

import time

import pytest

from relay_core.auth.sas_credentials import (
    TOKEN_LIFETIME,
    AnonymousCredential,
    SasKeyCredential,
    SasTokenCredential,
    credential_from_connection_string,
)
from relay_core.errors import ConfigurationError
from relay_core.hyco.address import Endpoint
from relay_core.hyco.connection_string import ConnectionString
from relay_core.hyco.sas import SasToken, mint
from tests.support.machine import secrets

ENDPOINT = Endpoint("localhost", 8443, "myhc")


async def test_a_key_signs_for_its_hybrid_connection() -> None:
    """A key gives a token that verifies, covers the hybrid connection and lives as long as those of the SDKs."""
    key = secrets.new_key()
    before = time.time()
    token = await SasKeyCredential("send", key).token(ENDPOINT)
    parsed = SasToken.parse(token.value)
    assert parsed.is_signed_with(key)
    assert parsed.covers(host="localhost", path="myhc")
    assert token.expires_at == parsed.expires_at
    assert before + TOKEN_LIFETIME - 1 <= parsed.expires_at <= time.time() + TOKEN_LIFETIME


async def test_a_ready_token_is_used_as_it_is() -> None:
    """A SharedAccessSignature is handed out to the letter, with its own expiry."""
    text = mint("http://localhost/myhc", key_name="send", key=secrets.new_key(), expires_at=1800000000)
    token = await SasTokenCredential(text).token(ENDPOINT)
    assert (text, 1800000000.0) == (token.value, token.expires_at)


def test_a_broken_token_is_a_configuration_error() -> None:
    """A text that is not a signature is refused before any connection is opened."""
    with pytest.raises(ConfigurationError, match="SharedAccessSignature is unusable"):
        SasTokenCredential("nonsense")


async def test_anonymous_senders_have_no_token() -> None:
    """Without key and signature, the token is empty."""
    assert (await AnonymousCredential().token(ENDPOINT)).value == ""


@pytest.mark.parametrize(
    ("fields", "kind"),
    [
        ("SharedAccessKeyName=k;SharedAccessKey=s", SasKeyCredential),
        ("SharedAccessSignature=SharedAccessSignature sr=a&sig=b&se=1&skn=k", SasTokenCredential),
        ("", AnonymousCredential),
    ],
)
def test_the_string_decides(fields: str, kind: type) -> None:
    """The connection string's fields choose the credential."""
    parsed = ConnectionString.parse(f"Endpoint=sb://localhost;{fields}")
    assert kind is type(credential_from_connection_string(parsed))


def test_text_shows_the_rule_only() -> None:
    """A credential's text names its rule and not its key."""
    assert str(SasKeyCredential("send", secrets.new_key())) == "key of rule 'send'"


async def test_each_hybrid_connection_of_a_family_has_its_key() -> None:
    """The rule of one is not valid for another, so each token is signed with the key of its own."""
    keys = [secrets.new_key() for _ in range(3)]
    parsed = ConnectionString.parse(
        "Endpoint=sb://localhost:8443;SharedAccessKeyName=send;EntityPath=myhc;"
        f"SharedAccessKey={keys[0]};FamilyKeys={keys[1]},{keys[2]}"
    )
    credential = credential_from_connection_string(parsed)
    for sibling, key in zip(parsed.endpoint().siblings, keys, strict=True):
        token = SasToken.parse((await credential.token(sibling)).value)
        assert token.is_signed_with(key)
        assert token.covers(host="localhost", path=sibling.path)
