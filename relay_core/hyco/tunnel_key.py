"""The tunnel key: 32 random bytes that agent and client share and the relay never sees, as base64 in text."""

from __future__ import annotations

import base64
import binascii

from relay_core.errors import ConfigurationError

__all__ = ["TUNNEL_KEY_BYTES", "parse_tunnel_key"]

TUNNEL_KEY_BYTES = 32


def parse_tunnel_key(text: str, subject: str) -> bytes:
    """Return the key's bytes.

    Args:
        text: The key as base64.
        subject: Subject of the error message: the key, with its source.

    Raises:
        ConfigurationError: The text is not a tunnel key. The message does not quote it.
    """
    try:
        key = base64.b64decode(text.strip(), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if len(key) != TUNNEL_KEY_BYTES:
        raise ConfigurationError(
            f"{subject} is not {TUNNEL_KEY_BYTES} bytes encoded as base64",
            hint="create one with: python3 -c 'import base64, os; print(base64.b64encode(os.urandom(32)).decode())'",
        )
    return key
