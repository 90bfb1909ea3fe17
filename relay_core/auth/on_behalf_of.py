"""Tokens of the user who submitted an Azure ML job that runs under the user's own identity.

The job's OBO_ENDPOINT answers `GET ?resource=https://relay.azure.net`. That is all `AzureMLOnBehalfOfCredential` of
azure-ai-ml does, whose import takes a second and 100 MB, and whose only public form blocks beyond any deadline.
"""

from __future__ import annotations

import datetime as dt
import json
import re
import time
from typing import Any

from azure.core.credentials import AccessToken
from azure.core.exceptions import ClientAuthenticationError, ServiceResponseError

__all__ = ["OnBehalfOfCredential", "parse_answer"]

_FRACTION = re.compile(r"\.\d+")


class OnBehalfOfCredential:
    """Asks the endpoint of a job.

    Args:
        url: OBO_ENDPOINT.
    """

    def __init__(self, url: str) -> None:
        self._url = url

    async def __aenter__(self) -> OnBehalfOfCredential:
        return self

    async def __aexit__(self, *_exc_info: object) -> None:
        return None

    async def get_token(self, scope: str, **_options: Any) -> AccessToken:
        """Return a token; tenant and claims are the job's.

        Raises:
            ClientAuthenticationError: the endpoint refuses, or answers something else.
            ServiceResponseError: it cannot be reached.
        """
        import aiohttp  # noqa: PLC0415 - beside the SDK's own lazy imports

        resource = scope.removesuffix("/.default")
        try:
            # Without the environment's proxy: the endpoint is a service on the node.
            async with (
                aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as session,
                session.get(self._url, params={"resource": resource}, allow_redirects=False) as response,
            ):
                body = await response.text()
                status = response.status
        except aiohttp.ClientError as error:
            raise ServiceResponseError(f"OBO_ENDPOINT: {error}") from error
        if status >= 500:
            raise ServiceResponseError(f"OBO_ENDPOINT answered {status}")
        if status != 200:
            raise ClientAuthenticationError(message=f"OBO_ENDPOINT answered {status}")
        return parse_answer(body, now=time.time())


def parse_answer(body: str, *, now: float) -> AccessToken:
    """Read the answer: `access_token` or `token`; `expires_on`, `expires_in` or `expiresOn` (ISO 8601).

    Raises:
        ClientAuthenticationError: it holds no token; what it holds is not repeated.
    """
    try:
        fields = json.loads(body)
        value = fields.get("access_token") or fields["token"]
        if fields.get("expires_on"):
            expires_on = int(fields["expires_on"])
        elif fields.get("expires_in"):
            expires_on = int(now) + int(fields["expires_in"])
        else:
            # Python 3.10 reads neither "Z" nor seven digits of a second.
            moment = dt.datetime.fromisoformat(_FRACTION.sub("", fields["expiresOn"]).replace("Z", "+00:00"))
            expires_on = int((moment if moment.tzinfo else moment.replace(tzinfo=dt.timezone.utc)).timestamp())
        if not isinstance(value, str):
            raise TypeError
    except (ValueError, TypeError, KeyError, AttributeError):
        raise ClientAuthenticationError(message="OBO_ENDPOINT answered something that is no token") from None
    return AccessToken(value, expires_on)
