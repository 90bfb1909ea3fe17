"""Checks of configuration and token."""

from __future__ import annotations

import os
import ssl
import time

from relay_core.access_settings import CA_FILE_VARIABLE, AccessSettings, Side
from relay_core.auth import Access, EntraCredential, find_access
from relay_core.auth.entra import LONGEST_VALIDITY
from relay_core.diagnosis.checks import Examination
from relay_core.errors import Unauthorized
from relay_core.net.relay_tls import client_tls

__all__ = ["TOKEN", "TOKEN_LIMIT", "AccessChecks", "check_token"]

AUTHORITIES, CONFIGURATION, TOKEN = "CA file", "configuration", "token"
CONFIGURATION_LIMIT = 40.0
"""Time limit in seconds for the configuration: Key Vault and Entra ID have 10 s each, both for the connection string
and for the tunnel key."""
TOKEN_LIMIT = 20.0
"""Time limit in seconds for the token: Entra ID has 10 s."""


class AccessChecks:
    """Checks which hybrid connection and credential are configured, and whether there is a valid token.

    Args:
        settings: Explicit settings; environment variables are used for the others.
        side: Selects the Entra identities.
    """

    def __init__(self, settings: AccessSettings, side: Side) -> None:
        self.tls: ssl.SSLContext | None = None
        """Set if the CA file is usable."""
        self.access: Access | None = None
        """Set if a configuration was found."""
        self._settings = settings
        self._side: Side = side

    async def run(self, examination: Examination) -> None:
        """Check the configuration."""
        await examination.check(AUTHORITIES, self._load_authorities)
        await examination.check(CONFIGURATION, self._find_access, after=[AUTHORITIES], limit=CONFIGURATION_LIMIT)

    async def _load_authorities(self) -> str:
        self.tls = client_tls(self._settings.ca_file)
        file = self._settings.ca_file or os.environ.get(CA_FILE_VARIABLE)
        return f"the system's certificate authorities and {file}" if file else "the system's certificate authorities"

    async def _find_access(self) -> str:
        self.access = await find_access(self._settings, side=self._side, tls=self.tls)
        key = "with" if self.access.tunnel_key else "without"
        return f"{self.access.endpoint}, from {self.access.source}, {key} a tunnel key"


async def check_token(access: Access, skew: float) -> str:
    """Return the kind of the token and how long it is valid.

    Args:
        access: Has the credential.
        skew: Seconds by which the relay's clock is ahead of this machine's.

    Raises:
        Unauthorized: The token has expired.
        RelayDebugError: No token is available.
    """
    credential = access.credential
    token = await credential.token(access.endpoint)
    what = "; ".join(credential.source.tried) if isinstance(credential, EntraCredential) else str(credential)
    if token.expires_at is None:
        return f"{what}, which does not expire"
    left = token.expires_at - time.time() - skew
    if left <= 0:
        raise Unauthorized(
            f"the token expired {_span(-left)} ago ({what})",
            hint="create a new one, or use a connection string with a key; also check this machine's clock",
        )
    is_plausible = left <= LONGEST_VALIDITY or not isinstance(credential, EntraCredential)
    return f"{what}, valid for {_span(left)}" if is_plausible else what


def _span(seconds: float) -> str:
    hours = seconds / 3600
    return f"{seconds / 60:.0f} min" if hours < 2 else f"{hours:.0f} h" if hours < 48 else f"{hours / 24:.0f} days"
