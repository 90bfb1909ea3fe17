"""Facts about the JWTs that a relay accepts instead of shared access signatures."""

import base64
import json
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from hypothesis import given
from hypothesis import strategies as st

from relay_core.errors import ConfigurationError
from relay_core.hyco.sas import mint
from relay_server.access import Authorizer
from relay_server.config.file import parse
from relay_server.config.model import HybridConnection, JwtIssuer, Right, Rule
from relay_server.protocol.refusals import Refusal
from tests.support.azure.entra import LISTENER, RELAY, SENDER, TENANT, Issuer, sign

NOW = 1_800_000_000
ISSUER = Issuer()
HC = HybridConnection("myhc")


SIGNING = Rule("listen", frozenset({Right.LISTEN}), "signing-key")


def trusting(*issuers: JwtIssuer) -> Authorizer:
    return Authorizer(hosts=("localhost",), rules=(SIGNING,), issuers=issuers)


@pytest.fixture(scope="module")
def authorizer(tmp_path_factory: pytest.TempPathFactory) -> Authorizer:
    return trusting(ISSUER.settings(tmp_path_factory.mktemp("jwt")))


def token(**claims: object) -> str:
    return ISSUER.token(**{"exp": NOW + 60, "nbf": NOW, "roles": [LISTENER], **claims})


def check(authorizer: Authorizer, text: str, right: Right = Right.LISTEN) -> float:
    return authorizer.check(text, right=right, path="myhc", connection=HC, now=NOW)


@pytest.mark.parametrize(
    "claims",
    [
        {},
        {"aud": f"{RELAY}/"},
        {"aud": ["https://other", RELAY]},
        {"roles": LISTENER},
        {"roles": ["Reader", LISTENER]},
        {"roles": ["Azure Relay Owner"]},
        {"nbf": NOW + 30},
        {"nbf": None},
    ],
)
def test_good_tokens(authorizer: Authorizer, claims: dict[str, object]) -> None:
    """Both audiences, one or several roles, and a clock that is a little ahead are fine; `Bearer` may stand before."""
    assert NOW + 60 == check(authorizer, token(**claims))
    assert NOW + 60 == check(authorizer, f"Bearer {token(**claims)}")


@pytest.mark.parametrize(
    ("claims", "code"),
    [
        ({"exp": NOW}, "ExpiredToken"),
        ({"exp": None}, "MalformedToken"),
        ({"exp": "soon"}, "MalformedToken"),
        ({"exp": True}, "MalformedToken"),
        ({"exp": 10**400}, "MalformedToken"),
        ({"exp": float("nan")}, "MalformedToken"),
        ({"nbf": NOW + 120}, "ImmatureToken"),
        ({"aud": "https://vault.azure.net"}, "InvalidAudience"),
        ({"aud": None}, "InvalidAudience"),
        ({"aud": {"https://relay.azure.net": 1}}, "InvalidAudience"),
        ({"roles": [SENDER]}, "InsufficientRights"),
        ({"roles": []}, "InsufficientRights"),
        ({"roles": None}, "InsufficientRights"),
        ({"iss": "https://sts.windows.net/another/"}, "InvalidSignature"),
        ({"iss": None}, "InvalidSignature"),
    ],
)
def test_every_fault_is_a_401_of_its_own(authorizer: Authorizer, claims: dict[str, object], code: str) -> None:
    """A token that is not good for this is identified by a code for its fault."""
    with pytest.raises(Refusal) as caught:
        check(authorizer, token(**claims))
    assert (401, code) == (caught.value.status, caught.value.code)


@pytest.mark.parametrize(
    "header", [{"alg": "none"}, {"alg": "HS256"}, {"alg": "RS512"}, {"alg": "RS256", "crit": ["x"]}, {}, {"alg": None}]
)
def test_only_one_algorithm(authorizer: Authorizer, header: dict[str, object]) -> None:
    """The token does not choose how it is checked."""
    with pytest.raises(Refusal, match="malformed"):
        check(authorizer, ISSUER.token(exp=NOW + 60, header={"typ": "JWT", **header}))


def test_a_changed_token(authorizer: Authorizer) -> None:
    """Claims of one token under the signature of another are refused, and so are claims without a signature."""
    weak, strong = token(roles=[]), sign({"alg": "RS256"}, {"iss": ISSUER.name, "roles": [LISTENER], "exp": NOW + 60})
    header, _, signature = weak.split(".")
    for forged in (f"{header}.{strong.split('.')[1]}.{signature}", f"{header}.{strong.split('.')[1]}."):
        with pytest.raises(Refusal, match="invalid signature"):
            check(authorizer, forged)


def test_keys_can_be_changed(tmp_path: Path) -> None:
    """Two entries of one issuer with different keys are both good: a new key can come before the old one goes."""
    other = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    old = tmp_path / "old.pem"
    old.write_bytes(_pem(other.public_key()))
    both = trusting(JwtIssuer(ISSUER.name, old), ISSUER.settings(tmp_path))
    assert NOW + 60 == check(both, token())
    with pytest.raises(Refusal, match="invalid signature"):
        check(trusting(JwtIssuer(ISSUER.name, old)), token())


def test_without_issuers_no_jwt_is_a_token() -> None:
    """A relay that trusts nobody answers as to any other text."""
    with pytest.raises(Refusal, match="malformed"):
        check(trusting(), token())


def test_signatures_of_keys_still_count(authorizer: Authorizer) -> None:
    """A shared access signature is checked with the rules."""
    signed = mint("http://localhost/myhc", key_name="listen", key="signing-key", expires_at=NOW + 60)
    assert NOW + 60 == check(authorizer, signed)


@pytest.mark.parametrize("content", [b"", b"-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n"])
def test_a_file_without_a_key(tmp_path: Path, content: bytes) -> None:
    """An unusable file stops the relay before it serves."""
    (tmp_path / "key.pem").write_bytes(content)
    with pytest.raises(ConfigurationError, match=r"key\.pem does not contain a public key"):
        trusting(JwtIssuer("i", tmp_path / "key.pem"))
    with pytest.raises(ConfigurationError, match=r"cannot read .*none\.pem: No such file"):
        trusting(JwtIssuer("i", tmp_path / "none.pem"))


def test_keys_of_other_kinds(tmp_path: Path) -> None:
    """Another algorithm's key, and one that is too short, are refused."""
    for key in (ec.generate_private_key(ec.SECP256R1()), rsa.generate_private_key(65537, 1024)):
        (tmp_path / "key.pem").write_bytes(_pem(key.public_key()))
        with pytest.raises(ConfigurationError, match="is not an RSA key of at least 2048 bits"):
            trusting(JwtIssuer("i", tmp_path / "key.pem"))


def _pem(key: rsa.RSAPublicKey | ec.EllipticCurvePublicKey) -> bytes:
    return key.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


PARTS = st.binary(max_size=40) | st.dictionaries(
    st.sampled_from(["alg", "iss", "exp", "aud"]), st.sampled_from(["RS256", ISSUER.name, NOW + 1, None, [[]]])
).map(lambda claims: json.dumps(claims).encode())


@given(st.lists(PARTS, min_size=3, max_size=3), st.text(max_size=20))
def test_any_text_is_refused_with_401(authorizer: Authorizer, parts: list[bytes], text: str) -> None:
    """No text that is not a token raises anything but a refusal."""
    encoded = [base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts]
    for candidate in (".".join(encoded), f"ey{text}.{text}.", "ey" + ".".join(encoded)):
        with pytest.raises(Refusal) as caught:
            check(authorizer, candidate)
        assert 401 == caught.value.status


def test_the_configuration_file(tmp_path: Path) -> None:
    """Issuer, key, audiences and roles are read; roles and audiences have Azure's as defaults."""
    text = f"""
        [[jwt_issuer]]
        issuer = "https://sts.windows.net/{TENANT}/"
        public_key = "issuer.pem"
        [[jwt_issuer]]
        issuer = "https://ci.example"
        public_key = "/etc/ci.pem"
        audiences = ["api://relay"]
        [jwt_issuer.roles]
        "debug.agent" = ["Listen"]
        "debug.all" = ["listen", "send"]
    """
    azure, ci = parse(text, directory=tmp_path).jwt_issuers
    assert tmp_path / "issuer.pem" == azure.public_key
    assert (RELAY, f"{RELAY}/") == azure.audiences
    assert frozenset({Right.LISTEN}) == azure.roles[LISTENER]
    assert ("api://relay",) == ci.audiences
    assert {"debug.agent": {Right.LISTEN}, "debug.all": {Right.LISTEN, Right.SEND}} == dict(ci.roles)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('issuer="i"', "[[jwt_issuer]] number 1: 'public_key' is missing"),
        ('issuer=""\npublic_key="k"', "a JWT issuer has no name"),
        ('issuer="i"\npublic_key="k"\naudience="x"', "[[jwt_issuer]] number 1: unknown field 'audience'"),
        ('issuer="i"\npublic_key="k"\naudiences=[""]', "JWT issuer 'i' has no audiences"),
        ('issuer="i"\npublic_key="k"\nroles={x=["Read"]}', "[roles]: 'x' has unknown values"),
        ('issuer="i"\npublic_key="k"\nroles={x=[]}', "a role of JWT issuer 'i' has no rights"),
    ],
)
def test_faults_in_the_configuration_file(text: str, sentence: str) -> None:
    """A wrong table is refused with its place."""
    with pytest.raises(ConfigurationError) as caught:
        parse(f"[[jwt_issuer]]\n{text}", directory=Path())
    assert caught.value.sentence.startswith(sentence)
