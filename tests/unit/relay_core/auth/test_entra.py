"""Facts about how long a token is used, and about the error of a source that has none."""

import asyncio

import pytest

from relay_core.auth.azure_sdk import brief
from relay_core.auth.entra import CLIENT_REUSE, RELAY_SCOPE, EntraCredential, TokenSource
from relay_core.auth.identity import IDENTITIES, choose_identities, managed_client_id
from relay_core.auth.on_behalf_of import parse_response
from relay_core.errors import ConfigurationError, RelayUnreachable, Unauthorized
from relay_core.hyco.address import Endpoint
from relay_core.hyco.sas import Token

ENDPOINT = Endpoint("contoso.servicebus.windows.net", 443, "myhc")


class Source:
    """A token source with a clock; its tokens are numbered and live an hour."""

    def __init__(self) -> None:
        self.now = 1_000_000.0
        self.asked = 0
        self.error: Exception | None = None

    async def token(self, scope: str) -> Token:
        assert scope == RELAY_SCOPE
        self.asked += 1
        await asyncio.sleep(0)
        if self.error:
            raise self.error
        return Token(f"token {self.asked}", self.now + 3600)

    def credential(self, **options: float) -> EntraCredential:
        return EntraCredential(self, clock=lambda: self.now, **options)


async def value(credential: EntraCredential) -> str:
    return (await credential.token(ENDPOINT)).value


async def test_an_agents_tokens_are_always_new() -> None:
    """Without reuse each call asks: after a refusal the next token is another one."""
    source = Source()
    credential = source.credential()
    assert ["token 1", "token 2"] == [await value(credential), await value(credential)]


async def test_a_clients_token_is_used_for_a_while() -> None:
    """A token is used again for a few minutes, then a new one is asked for long before it expires."""
    source = Source()
    credential = source.credential(reuse_for=CLIENT_REUSE)
    assert "token 1" == await value(credential)
    source.now += CLIENT_REUSE - 1
    assert "token 1" == await value(credential)
    source.now += 2
    assert "token 2" == await value(credential)
    source.now -= 3600  # a clock that was set back shows nothing about age
    assert "token 3" == await value(credential)


async def test_a_refused_token_is_not_used_again() -> None:
    """After the relay has refused a token the next one is a new one, which is used for a while."""
    source = Source()
    credential = source.credential(reuse_for=CLIENT_REUSE)
    assert "token 1" == await value(credential)
    credential.refused()
    assert ["token 2", "token 2"] == [await value(credential), await value(credential)]


async def test_a_token_that_is_about_to_expire_is_not_used_again() -> None:
    """With less than five minutes left a newer one is asked for."""
    source = Source()
    credential = source.credential(reuse_for=7200)
    await value(credential)
    source.now += 3600 - 301
    assert "token 1" == await value(credential)
    source.now += 2
    assert "token 2" == await value(credential)


async def test_calls_at_the_same_time_share_one_request() -> None:
    """A burst of connections asks once."""
    source = Source()
    credential = source.credential(reuse_for=CLIENT_REUSE)
    assert {"token 1"} == set(await asyncio.gather(*(value(credential) for _ in range(5))))
    assert 1 == source.asked


async def test_the_last_token_bridges_an_outage() -> None:
    """While nobody answers the last token serves until it expires; then the failure can be retried."""
    source = Source()
    credential = source.credential()
    await value(credential)
    source.error = ConfigurationError("no identity", hint="look")
    source.now += 3599
    assert "token 1" == await value(credential)
    source.now += 1
    with pytest.raises(RelayUnreachable, match="no identity. hint: look"):
        await value(credential)
    source.error = None
    assert "token 4" == await value(credential)


async def test_a_source_that_never_worked_is_believed() -> None:
    """The first failure is reported as it is: a missing identity does not appear by waiting."""
    source = Source()
    source.error = ConfigurationError("no identity")
    with pytest.raises(ConfigurationError):
        await value(source.credential())


async def test_the_error_without_any_identity(monkeypatch: pytest.MonkeyPatch) -> None:
    """One sentence lists what was tried, and the hint fits the side."""
    monkeypatch.setattr("os.environ", {"PATH": ""})
    for side, hint in (
        ("client", "run: az login"),
        ("agent", "managed identity to this compute, or use a connection string"),
    ):
        identities = [one for one in choose_identities(side, requested=None, environ={}) if one.name != "managed"]
        with pytest.raises(ConfigurationError) as caught:
            await TokenSource(identities).token(RELAY_SCOPE)
        assert all(identity.label in caught.value.sentence for identity in identities)
        assert "no Entra ID token for https://relay.azure.net: service principal: AZURE_TENANT_ID" in str(caught.value)
        assert hint in caught.value.hint if side == "client" else caught.value.hint


@pytest.mark.parametrize(
    ("side", "requested", "environ", "names"),
    [
        ("agent", None, {}, "environment workload on-behalf-of managed"),
        ("client", None, {}, "environment azure-cli azd powershell"),
        ("client", "prod", {}, "environment workload on-behalf-of managed"),
        ("agent", "dev", {}, "environment azure-cli azd powershell"),
        ("agent", None, {"AZURE_TOKEN_CREDENTIALS": "ManagedIdentityCredential"}, "managed"),
        ("agent", None, {"AZURE_TOKEN_CREDENTIALS": "dev", "RELAY_IDENTITY": "workload"}, "workload"),
        ("agent", "Azure-CLI", {"RELAY_IDENTITY": "nonsense"}, "azure-cli"),
    ],
)
def test_which_identities_are_tried(side: str, requested: str | None, environ: dict[str, str], names: str) -> None:
    """The side decides unless option, RELAY_IDENTITY or AZURE_TOKEN_CREDENTIALS does, in this order."""
    identities = choose_identities(side, requested=requested, environ=environ)
    assert names.split() == [identity.name for identity in identities]


def test_unknown_identities() -> None:
    """The error for an unknown name contains its source and the known names."""
    with pytest.raises(ConfigurationError, match="--identity names .*'me'.*dev, .*azure-cli"):
        choose_identities("agent", requested="me", environ={})


def test_which_managed_identity() -> None:
    """The identity of an Azure ML job comes before the general variable; without both the machine's own is meant."""
    both = {"DEFAULT_IDENTITY_CLIENT_ID": "job", "AZURE_CLIENT_ID": "machine"}
    assert "job" == managed_client_id(both)
    assert "machine" == managed_client_id({**both, "DEFAULT_IDENTITY_CLIENT_ID": ""})
    assert managed_client_id({}) is None
    assert "" == IDENTITIES["managed"].unavailable_reason({})


@pytest.mark.parametrize(
    ("answer", "expires_on"),
    [
        ('{"access_token": "t", "expires_on": "1800000000"}', 1800000000),
        ('{"token": "t", "expires_in": 60}', 160),
        ('{"token": "t", "expiresOn": "2027-01-15T08:00:00Z"}', 1800000000),
        ('{"token": "t", "expiresOn": "2027-01-15T08:00:00"}', 1800000000),
        ('{"token": "t", "expiresOn": "2027-01-15T10:00:00.1234567+02:00"}', 1800000000),
    ],
)
def test_answers_of_the_on_behalf_of_endpoint(answer: str, expires_on: int) -> None:
    """Every form that the endpoint is known to use is read."""
    assert ("t", expires_on) == tuple(parse_response(answer, now=100.5))[:2]


@pytest.mark.parametrize("answer", ["", "[]", "null", "{}", '{"token": 1, "expires_in": 5}', '{"token": "t"}'])
def test_an_answer_without_a_token(answer: str) -> None:
    """Anything else is a failure, and no part of it is repeated."""
    from azure.core.exceptions import ClientAuthenticationError

    with pytest.raises(ClientAuthenticationError, match="an invalid token response"):
        parse_response(answer, now=0)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ManagedIdentityCredential authentication unavailable. No identity.\nError: x", "No identity. Error: x"),
        ("AADSTS1: bad.\r\nTrace ID: 12 Timestamp: now", "AADSTS1: bad"),
        ("Visit https://aka.ms/x to troubleshoot", "no reason given"),
        (None, "no reason given"),
        ("x" * 500, "x" * 200),
    ],
)
def test_the_gist_of_sdk_messages(text: str | None, expected: str) -> None:
    """The SDK's paragraphs become a few words."""
    assert expected == brief(text)


async def test_a_refusal_weighs_more_than_an_absence(monkeypatch: pytest.MonkeyPatch) -> None:
    """One refused identity among absent ones makes it a refusal."""
    from relay_core.auth import entra
    from relay_core.auth.azure_sdk import Failure, IdentityFailed

    failures = iter([IdentityFailed(Failure.NO_ANSWER, "quiet"), IdentityFailed(Failure.REFUSED, "no")])

    async def acquire(*_arguments: object, **_options: object) -> Token:
        raise next(failures)

    monkeypatch.setattr(entra, "acquire", acquire)
    source = TokenSource([IDENTITIES["workload"], IDENTITIES["managed"]])
    with pytest.raises(Unauthorized, match="workload identity: quiet; managed identity: no"):
        await source.token(RELAY_SCOPE)
