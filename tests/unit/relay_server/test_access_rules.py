import base64
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay_core.hyco.sas import mint
from relay_server.access import Authorizer
from relay_server.config.model import HybridConnection, Right, Rule
from relay_server.protocol.refusals import Refusal, missing_right

NOW = 1_800_000_000.0
ENTITY = Rule("agent", frozenset({Right.LISTEN}), "entity-key", "entity-key-2")
NAMESPACE = Rule("root", frozenset({Right.MANAGE}), "root-key")
SHADOW = Rule("agent", frozenset({Right.SEND}), "shadow-key")
HC = HybridConnection("My/Hc", rules=(ENTITY,))
OPEN = HybridConnection("open", requires_client_authorization=False, rules=(ENTITY,))
AUTHORIZER = Authorizer(hosts=("relay.test", "localhost"), rules=(NAMESPACE, SHADOW))


def token(rule="agent", key="entity-key", uri="http://relay.test/my/hc", expires_at=NOW + 60):
    return mint(uri, key_name=rule, key=key, expires_at=int(expires_at))


def check(text, right=Right.LISTEN, connection=HC, path="my/hc"):
    return AUTHORIZER.check(text, right=right, path=path, connection=connection, now=NOW)


def refusal(text, **options):
    with pytest.raises(Refusal) as caught:
        check(text, **options)
    return caught.value.status, caught.value.code


def test_a_good_token_grants_until_it_expires():
    """The result is the token's end."""
    assert NOW + 60 == check(token())


@pytest.mark.parametrize(
    "text",
    [
        token(key="entity-key-2"),
        token(rule="AGENT"),
        token(rule="root", key="root-key"),
        token(uri="sb://localhost:8443/MY/HC/deeper?x=1"),
        token(uri="http://relay.test/"),
        token(uri="http://relay.test:443/my"),
        "Bearer " + token(),
        token().replace("SharedAccessSignature", "sharedaccesssignature"),
    ],
    ids=[
        "secondary key",
        "rule in capitals",
        "namespace rule",
        "deeper",
        "namespace",
        "ancestor",
        "bearer",
        "scheme case",
    ],
)
def test_every_spelling_in_use_is_accepted(text):
    """Keys of both kinds, rules of both levels, and the audiences that clients write."""
    assert check(text) == NOW + 60


def test_a_rule_of_the_namespace_with_the_same_name_counts_too():
    """The hybrid connection's rule hides no rule of the namespace that signed the token."""
    assert NOW + 60 == check(token(key="shadow-key"), right=Right.SEND)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (None, "MissingToken"),
        ("", "MissingToken"),
        ("garbage", "MalformedToken"),
        ("SharedAccessSignature sr=x", "MalformedToken"),
        ("SharedAccessSignature sr=x&sig=y&se=soon&skn=z", "MalformedToken"),
        ("SharedAccessSignature \ud800", "MalformedToken"),
        ("SharedAccessSignature " + "x" * 20_000, "MalformedToken"),
        (token(key="wrong"), "InvalidSignature"),
        (token(rule="nobody"), "InvalidSignature"),
        (token(expires_at=NOW), "ExpiredToken"),
        (token(uri="http://other.test/my/hc"), "InvalidAudience"),
        (token(uri="http://relay.test/my/hcx"), "InvalidAudience"),
        (token(key="shadow-key"), "InsufficientRights"),
    ],
)
def test_every_fault_is_a_401_of_its_own(text, code):
    """A token that is not good for this is identified by a code for its fault."""
    assert (401, code) == refusal(text)


def test_a_forged_token_learns_nothing_but_that():
    """Signature comes first: an expired, foreign token with a wrong signature is only 'invalid signature'."""
    assert (401, "InvalidSignature") == refusal(token(key="wrong", expires_at=0, uri="http://other.test/x"))


def test_the_missing_right_is_named():
    """A sender with a Listen key reads which right it lacks."""
    with pytest.raises(Refusal, match="'Send' claim") as caught:
        check(token(), right=Right.SEND)
    assert missing_right("Send").message == caught.value.message


def test_anonymous_senders_need_no_token_and_listeners_do():
    """Without client authorization any sender is welcome, whatever it holds, and a listener needs Listen."""
    assert math.inf == check(None, right=Right.SEND, connection=OPEN)
    assert math.inf == check("garbage", right=Right.SEND, connection=OPEN)
    assert (401, "MissingToken") == refusal(None, connection=OPEN)


def test_a_missing_hybrid_connection_needs_a_token_of_the_namespace():
    """Only a holder of a namespace key gets past authorization where nothing exists."""
    assert NOW + 60 == check(token(rule="root", key="root-key"), connection=None)
    assert (401, "InvalidSignature") == refusal(token(), connection=None)
    assert (401, "MissingToken") == refusal(None, right=Right.SEND, connection=None)


@given(
    st.text(max_size=80)
    | st.binary(max_size=60).map(lambda raw: "SharedAccessSignature sr=%2f&sig=" + base64.b64encode(raw).decode())
)
def test_any_text_is_refused_with_401(text):
    """No text that is not a token raises anything but a refusal."""
    assert 401 == refusal(text)[0]
