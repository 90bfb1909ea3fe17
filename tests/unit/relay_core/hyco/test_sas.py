"""Facts about shared access signatures."""

from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay_core.errors import ProtocolError
from relay_core.hyco.sas import SasToken, mint

KEY = "c2VjcmV0LWtleS1mb3ItdGVzdHM="
EXPIRY = 1800000000
HOST = "contoso.servicebus.windows.net"

# (resource URI, signature): vectors that verify against the live service's algorithm.
VECTORS = [
    ("http://contoso.servicebus.windows.net/hyco", "5z%2BEyOvFcT3TVzSRLFV2tByOI4VANyCpT3hvYmHRP9Y%3D"),
    ("http://contoso.servicebus.windows.net:443/hyco", "WPR91XvGLUzD0D%2Fvi2x9GzaoUnyAroQsJWWMw%2BXwHVE%3D"),
    ("http://contoso.servicebus.windows.net/hyco/", "X2W%2F0XhhyeZgKpxtoaxIbgA3an2NQ7p2AqHmQBgL6wI%3D"),
    ("sb://contoso.servicebus.windows.net", "3YdFoULA4BWTYf3c5IHtRK2qTy6GTRG6YHjST4l1dL8%3D"),
]
LOWER_CASE = (
    "SharedAccessSignature sr=http%3a%2f%2fcontoso.servicebus.windows.net%2fhyco"
    "&sig=Yzol62T4cYo3i0eNS86NgeGeIZ2X%2BMBXehUzMMqWElg%3D&se=1800000000&skn=send"
)


@pytest.mark.parametrize(("uri", "signature"), VECTORS)
def test_mint_gives_the_published_signature(uri: str, signature: str) -> None:
    """A minted token equals the published test vector."""
    expected = f"SharedAccessSignature sr={quote(uri, safe='')}&sig={signature}&se={EXPIRY}&skn=send"
    assert expected == mint(uri, key_name="send", key=KEY, expires_at=EXPIRY)


@pytest.mark.parametrize(("uri", "signature"), VECTORS)
def test_published_signatures_verify(uri: str, signature: str) -> None:
    """A token with a published signature verifies and covers its hybrid connection."""
    token = SasToken.parse(f"SharedAccessSignature sr={quote(uri, safe='')}&sig={signature}&se={EXPIRY}&skn=send")
    assert token.is_signed_with(KEY)
    assert token.covers(host=HOST, path="hyco")


def test_signature_covers_the_literal_text() -> None:
    """A lower-cased percent-encoding verifies as it stands."""
    token = SasToken.parse(LOWER_CASE)
    assert token.is_signed_with(KEY)
    assert token.covers(host=HOST, path="hyco")


def test_another_key_does_not_verify() -> None:
    """A token is not valid for another key."""
    assert not SasToken.parse(LOWER_CASE).is_signed_with(KEY + "=")


def test_field_order_and_case_are_free() -> None:
    """Field names are case-insensitive and come in any order; so is the scheme's case."""
    text = mint("http://h/p", key_name="send", key=KEY, expires_at=EXPIRY)
    scheme, _, fields = text.partition(" ")
    shuffled = "&".join(reversed(fields.replace("sr=", "SR=").split("&")))
    assert SasToken.parse(f"{scheme.lower()} {shuffled}") == SasToken.parse(text)


@pytest.mark.parametrize(
    ("resource", "path", "covered"),
    [
        ("http://ns:443/Path", "path", True),
        ("http://ns/path/", "path", True),
        ("http://ns/", "path", True),
        ("sb://ns", "path", True),
        ("sb://ns:8445", "path", True),
        ("https://ns/path/sub%20x?query=1", "path", True),
        ("NS/path", "path", True),
        ("http://ns/a", "a/b", True),
        ("http://ns/pathology", "path", False),
        ("http://ns/path", "pathology", False),
        ("http://ns/other", "path", False),
        ("http://other/path", "path", False),
        ("http://[bad/path", "path", False),
    ],
)
def test_audience(resource: str, path: str, covered: bool) -> None:
    """The audience ignores scheme, port, query, case and trailing slash, and matches on segment boundaries."""
    token = SasToken.parse(mint(resource, key_name="k", key=KEY, expires_at=EXPIRY))
    assert covered is token.covers(host="ns", path=path)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "eyJ0eXAi.eyJhdWQi.sig",
        "SharedAccessSignature ",
        "SharedAccessSignature sr=a&sig=b&se=1",
        "SharedAccessSignature sr=a&sig=b&se=soon&skn=k",
        "SharedAccessSignature sr=a&sig=b&se=-1&skn=k",
        "SharedAccessSignature sr=a&sig=b&se=9999999999999&skn=k",
        "SharedAccessSignature sr=a&sig=b&se=１&skn=k",
    ],
)
def test_other_texts_are_protocol_errors(text: str) -> None:
    """What is not a signature is refused with an error that does not repeat it."""
    with pytest.raises(ProtocolError) as caught:
        SasToken.parse(text)
    assert not text or text not in str(caught.value)


@given(
    uri=st.text(min_size=1),
    name=st.text(st.characters(exclude_categories=["Cs"]), min_size=1),
    key=st.text(st.characters(exclude_categories=["Cs"])),
    expiry=st.integers(0, 10**11),
)
def test_minted_tokens_verify(uri: str, name: str, key: str, expiry: int) -> None:
    """Whatever is minted parses back to the same rule and expiry, and verifies with the same key."""
    try:
        uri.encode()
    except UnicodeEncodeError:
        return
    token = SasToken.parse(mint(uri, key_name=name, key=key, expires_at=expiry))
    assert (name, expiry) == (token.key_name, token.expires_at)
    assert token.is_signed_with(key)


@given(st.text())
def test_any_text_gives_a_token_or_a_protocol_error(text: str) -> None:
    """No text makes parsing or the audience check fail in another way."""
    try:
        token = SasToken.parse("SharedAccessSignature " + text)
    except ProtocolError:
        return
    assert token.covers(host="ns", path="p") in {True, False}


def test_repr_hides_the_signature() -> None:
    """A token's repr does not show its signature."""
    token = SasToken.parse(LOWER_CASE)
    assert token.signature not in repr(token)
