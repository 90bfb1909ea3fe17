from dataclasses import replace
from pathlib import Path

import pytest

from relay_core.errors import ConfigurationError
from relay_server.config.model import HybridConnection, Limits, RelayConfig, Right, Rule, TlsSettings

RULE = Rule("r", frozenset({Right.LISTEN}), "the-secret-key", "the-other-secret-key")
CONFIG = RelayConfig(
    tls=TlsSettings(directory=Path("tls")), hybrid_connections=(HybridConnection("hc", rules=(RULE,)),)
)


def test_manage_implies_listen_and_send():
    """A Manage rule allows everything, a Listen rule only listening."""
    manage = replace(RULE, rights=frozenset({Right.MANAGE}))
    assert [True, True, True] == [manage.allows(right) for right in Right]
    assert [True, False, False] == [RULE.allows(right) for right in Right]


def test_keys_stay_out_of_repr():
    """No representation of a configuration holds a key."""
    assert "secret" not in repr(CONFIG)


def test_keys_are_tried_primary_first():
    """A rule offers its primary key before its secondary one, and only keys it has."""
    assert ("the-secret-key", "the-other-secret-key") == RULE.keys
    assert ("the-secret-key",) == replace(RULE, secondary_key=None).keys


@pytest.mark.parametrize("path", ["hc", "a/b/c", "Mixed.Case", "with-dash_and.dot", "0"])
def test_usual_paths_are_accepted(path):
    """Names that Azure allows are allowed."""
    assert path == HybridConnection(path).path


@pytest.mark.parametrize("path", ["", "/hc", "hc/", "a//b", "a/../b", "a b", "ä", "x" * 261, "hc?x", "a/./b"])
def test_odd_paths_are_refused(path):
    """Names that would not survive a URL or a file name are refused."""
    with pytest.raises(ConfigurationError):
        HybridConnection(path)


@pytest.mark.parametrize(("path", "shown"), [("a b", "'a b'"), ("", "''"), ("a\x1b[0m", r"'a\x1b[0m'")])
def test_an_odd_path_is_shown(path, shown):
    """The message contains the value, without control characters."""
    with pytest.raises(ConfigurationError) as caught:
        HybridConnection(path)
    assert f"invalid hybrid connection path: {shown}" == caught.value.sentence


@pytest.mark.parametrize(
    ("changes", "about"),
    [
        ({"namespace": "sb://localhost"}, "namespace"),
        ({"aliases": ("",)}, "aliases"),
        ({"port": 65536}, "port"),
        ({"public_address": "localhost"}, "public_address"),
        ({"public_address": "localhost:0"}, "public_address"),
        ({"public_address": "https://x:1"}, "public_address"),
        ({"hybrid_connections": (HybridConnection("hc"), HybridConnection("HC"))}, "'hc' is defined twice"),
        ({"rules": tuple(replace(RULE, name=f"r{n}") for n in range(13))}, "13 rules; the limit is 12"),
        ({"rules": (RULE, replace(RULE, name="R"))}, "two rules named 'r'"),
    ],
)
def test_contradictions_are_refused_by_name(changes, about):
    """A configuration that cannot work is not built, and the error names the field."""
    with pytest.raises(ConfigurationError, match=about):
        replace(CONFIG, **changes)


@pytest.mark.parametrize(
    "changes",
    [
        {"accept_timeout": 0},
        {"accept_timeout_status": 500},
        {"ping_interval": -1},
        {"max_listeners": 0},
        {"recycle_after": 0},
        {"token_expiry_grace": -1},
    ],
)
def test_limits_out_of_range_are_refused_by_name(changes):
    """A limit that makes no sense is named."""
    with pytest.raises(ConfigurationError, match=next(iter(changes))):
        Limits(**changes)


@pytest.mark.parametrize("changes", [{"name": ""}, {"name": "n" * 257}, {"rights": frozenset()}, {"primary_key": ""}])
def test_rules_that_nobody_could_use_are_refused(changes):
    """A rule needs a name, a right and keys of usable length, and the error shows no key."""
    with pytest.raises(ConfigurationError) as caught:
        replace(RULE, **changes)
    assert "secret" not in str(caught.value)


def test_a_certificate_needs_its_key():
    """Half of a certificate pair is refused, and so is nothing at all."""
    with pytest.raises(ConfigurationError, match="both"):
        TlsSettings(certificate=Path("c.pem"))
    with pytest.raises(ConfigurationError, match="directory"):
        TlsSettings()


@pytest.mark.parametrize("bind", ["0.0.0.0", "::", "192.0.2.1", "relay.example"])
def test_a_public_address_needs_rules(bind):
    """An address that others can reach is refused if a hybrid connection has no rule or issuer."""
    nobody = replace(CONFIG, hybrid_connections=(HybridConnection("hc"),))
    with pytest.raises(ConfigurationError, match="'hc' has no rules"):
        replace(nobody, bind=bind)
    for change in ({"rules": (RULE,)}, {"hybrid_connections": (HybridConnection("hc", rules=(RULE,)),)}):
        assert bind == replace(replace(nobody, **change), bind=bind).bind
    for loopback in ("127.0.0.1", "::1", "localhost"):
        assert loopback == replace(nobody, bind=loopback).bind
