"""Facts about the tunnel key as text."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay_core.errors import ConfigurationError
from relay_core.hyco.connection_string import TUNNEL_KEY_BYTES, ConnectionString, parse_tunnel_key


@given(st.binary(min_size=TUNNEL_KEY_BYTES, max_size=TUNNEL_KEY_BYTES))
def test_every_key_is_parsed(key: bytes) -> None:
    """Base64 of a key, with surrounding space as in a file, gives the key, alone and in a connection string."""
    text = base64.b64encode(key).decode()
    assert key == parse_tunnel_key(f" {text}\n", "the key")
    assert key == ConnectionString.parse(f"Endpoint=sb://localhost; TunnelKey = {text} ").tunnel_key


@pytest.mark.parametrize("text", ["", "c2hvcnQ=", "not base64!", base64.b64encode(bytes(33)).decode()])
def test_another_text_is_not_quoted(text: str) -> None:
    """The error names the source of the key and shows how to create one, without the text."""
    with pytest.raises(
        ConfigurationError, match="^the key from a file is not 32 bytes encoded as base64.*urandom"
    ) as it:
        parse_tunnel_key(text, "the key from a file")
    assert not text or text not in str(it.value)
