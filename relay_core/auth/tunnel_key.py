"""The tunnel key: 32 random bytes as base64, never sent to the relay.

Its sources, in order of precedence:

1. --tunnel-key-file             must not be readable by other users (0600)
2. --tunnel-key-secret           name of a Key Vault secret
3. TunnelKey= in the connection string
4. RELAY_TUNNEL_KEY              environment
5. RELAY_TUNNEL_KEY_FILE         environment; the file must not be readable by other users
6. RELAY_TUNNEL_KEY_SECRET       environment; name of a Key Vault secret
"""

from __future__ import annotations

import base64
import binascii

from relay_core.errors import ConfigurationError
from relay_core.hyco.connection_string import TUNNEL_KEY_BYTES

__all__ = ["parse_tunnel_key"]


def parse_tunnel_key(text: str, source: str) -> bytes:
    """Return the key's bytes.

    Args:
        text: The key as base64.
        source: Name of its source, for the error message.

    Raises:
        ConfigurationError: The text is not a tunnel key. The message does not quote it.
    """
    try:
        key = base64.b64decode(text.strip(), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if len(key) != TUNNEL_KEY_BYTES:
        raise ConfigurationError(
            f"the tunnel key from {source} is not {TUNNEL_KEY_BYTES} bytes encoded as base64",
            hint="create one with: python3 -c 'import base64, os; print(base64.b64encode(os.urandom(32)).decode())'",
        )
    return key
