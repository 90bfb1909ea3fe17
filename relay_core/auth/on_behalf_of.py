"""On-behalf-of tokens: those of the user who submitted an Azure ML job that runs under the user's identity.

The job's OBO_ENDPOINT answers `GET ?resource=https://relay.azure.net`. `AzureMLOnBehalfOfCredential` of azure-ai-ml
makes the same request, but importing it takes a second and 100 MB, and its only public form blocks without a deadline.
"""

from __future__ import annotations

import datetime as dt
import json
import re
import time
from typing import Any

from azure.core.credentials import AccessToken
from azure.core.exceptions import ClientAuthenticationError, ServiceResponseError

_FRACTION = re.compile(r"\.\d+")


class OnBehalfOfCredential:
    """Requests tokens from the endpoint of an Azure ML job.

    Args:
        url: Value of OBO_ENDPOINT.
    """

    def __init__(self, url: str) -> None:
        self._url = url

    async def get_token(self, scope: str, **_options: Any) -> AccessToken:
        """Return a token; `_options` is ignored, because tenant and claims are fixed by the job.

        Raises:
            ClientAuthenticationError: The endpoint refused the request, or its response is not a token.
            ServiceResponseError: The endpoint cannot be reached, or it failed.
        """
        import aiohttp  # noqa: PLC0415 - only if a request is made

        resource = scope.removesuffix("/.default")
        try:
            # No proxy from the environment: the endpoint is a service on the node.
            async with (
                aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as session,
                session.get(self._url, params={"resource": resource}, allow_redirects=False) as response,
            ):
                body = await response.text()
                status = response.status
        except aiohttp.ClientError as error:
            raise ServiceResponseError(f"OBO_ENDPOINT: {error}") from error
        if status >= 500:
            raise ServiceResponseError(f"OBO_ENDPOINT returned status {status}")
        if status != 200:
            raise ClientAuthenticationError(message=f"OBO_ENDPOINT returned status {status}")
        return parse_response(body, now=time.time())


def parse_response(body: str, *, now: float) -> AccessToken:
    """Parse the response: `access_token` or `token`; `expires_on`, `expires_in` or `expiresOn` (ISO 8601).

    Raises:
        ClientAuthenticationError: The response is not a token. The message does not quote it.
    """
    try:
        fields = json.loads(body)
        value = fields.get("access_token") or fields["token"]
        if fields.get("expires_on"):
            expires_on = int(fields["expires_on"])
        elif fields.get("expires_in"):
            expires_on = int(now) + int(fields["expires_in"])
        else:
            # Python 3.10 parses neither "Z" nor fractions with seven digits.
            moment = dt.datetime.fromisoformat(_FRACTION.sub("", fields["expiresOn"]).replace("Z", "+00:00"))
            expires_on = int((moment if moment.tzinfo else moment.replace(tzinfo=dt.timezone.utc)).timestamp())
        if not isinstance(value, str):
            raise TypeError
    except (ValueError, TypeError, KeyError, AttributeError):
        raise ClientAuthenticationError(message="OBO_ENDPOINT returned an invalid token response") from None
    return AccessToken(value, expires_on)
