import json

import pytest

from relay_core.hyco.address import ALLOWED_LISTENERS_HEADER, DISALLOWED_LISTENERS_HEADER, reject_url
from relay_server.protocol.http import RequestHead
from relay_server.protocol.refusals import Refusal
from relay_server.protocol.requests import HttpRequest, HybridRequest, is_hybrid

GUID = "7b17ae72-fddb-4c9b-a8f9-94c2654aa0fe"


def parse(target, *headers):
    return HybridRequest.parse(RequestHead("GET", target, headers))


def accept_message(request, **changes):
    facts = {
        "public": "relay.test:443",
        "identity": f"{GUID}_G0",
        "secret": "ab",
        "remote": ("1.2.3.4", 5),
    }
    return json.loads(request.accept_message(**(facts | changes)))["accept"]


@pytest.mark.parametrize("path", ["/$hc/x", "/$HC/x", "/%24hc/x", "/$hc/"])
def test_the_prefix_counts_in_any_case(path):
    """`/$hc/` marks a request of the protocol."""
    assert is_hybrid(RequestHead("GET", path, ()))


@pytest.mark.parametrize("path", ["/", "/$hc", "/hc/x", "/x/$hc/y", "$hc/x", "*", "http://h/$hc/x", "//$hc/x"])
def test_other_paths_are_plain_http(path):
    """Anything else is an ordinary HTTP request."""
    assert not is_hybrid(RequestHead("GET", path, ()))


def test_the_path_is_decoded_by_segment():
    """Percent-encoding is undone, but an encoded slash separates nothing."""
    assert ["My hc", "a/b", ""] == parse("/$hc/My%20hc/a%2Fb/?x").segments


@pytest.mark.parametrize(
    ("query", "action"),
    [
        ("", "connect"),
        ("sb-hc-action=LISTEN", "listen"),
        ("SB-HC-Action=accept", "accept"),
        ("a=1&sb-hc-action=connect", "connect"),
    ],
)
def test_a_missing_action_is_connect(query, action):
    """Official senders leave the action out; names and values count in any case."""
    assert action == parse(f"/$hc/x?{query}").action


def test_an_unknown_action_is_a_400():
    """A gesture that does not exist is refused."""
    with pytest.raises(Refusal) as caught:
        _ = parse("/$hc/x?sb-hc-action=dance").action
    assert 400 == caught.value.status


def test_the_token_header_comes_before_the_parameter():
    """Both places are read, and a plus in the parameter is a blank."""
    target = "/$hc/x?sb-hc-token=SharedAccessSignature+sr%3Dq"
    assert "SharedAccessSignature sr=q" == parse(target).token
    assert "header" == parse(target, ("serviceBUSauthorization", "header")).token
    assert parse("/$hc/x", ("Authorization", "Basic x")).token is None


def test_listener_ids_are_read_from_their_headers():
    """Lists may have blanks, empty items and any case."""
    request = parse(
        "/$hc/x",
        ("Microsoft-Relay-AllowedListeners", " A, b ,"),
        ("microsoft-relay-allowedlisteners", "C"),
        ("Microsoft-Relay-DisallowedListeners", ""),
    )
    assert frozenset("abc") == request.listener_ids(ALLOWED_LISTENERS_HEADER)
    assert frozenset() == request.listener_ids(DISALLOWED_LISTENERS_HEADER)


def test_an_accept_message_passes_on_what_is_the_applications():
    """Path, suffix and query keep every byte; the protocol's parameters and the token header stay behind."""
    request = parse(
        "/$hc/My%20Hc/sfx?app=1&&sb-hc-id=1&sb-hc-undefined&SB-HC-token=t&z=%2B&",
        ("Host", "h"),
        ("ServiceBusAuthorization", "t"),
        ("Cookie", "c"),
        ("X", "1"),
        ("x", "2"),
    )
    accept = accept_message(request)
    assert (
        "wss://relay.test:443/$hc/My%20Hc/sfx?app=1&&sb-hc-undefined&z=%2B&"
        f"&sb-hc-action=accept&sb-hc-id={GUID}_G0&sb-hc-secret=ab"
    ) == accept["address"]
    assert f"{GUID}_G0" == accept["id"]
    assert {"Host": "h", "Cookie": "c", "X": "1,2"} == accept["connectHeaders"]
    assert {"address": "1.2.3.4", "port": 5} == accept["remoteEndpoint"]


def test_headers_that_do_not_fit_a_control_message_are_refused():
    """Escaping can blow headers up beyond what a listener can read."""
    with pytest.raises(Refusal) as caught:
        accept_message(parse("/$hc/x", ("X", "\xe4" * 20_000)))
    assert 431 == caught.value.status


def rejection(query):
    return parse(f"/$hc/x?{query}").rejection()


OWN = "sb-hc-action=accept&sb-hc-id=1&sb-hc-secret=ab"


def test_an_accept_without_a_status_rejects_nothing():
    """The plain address means yes."""
    assert rejection(OWN) is None


def test_our_own_reject_url_is_understood():
    """What relay_core's listener sends comes out as it went in."""
    url = reject_url(f"wss://h/$hc/x?{OWN}", status=421, reason="no 'port' 5679 + more: 50% ä")
    assert (421, "no 'port' 5679 + more: 50% ä") == rejection(url.partition("?")[2])


def test_the_parameters_without_prefix_count_behind_the_address():
    """hyco-websocket sends them so; the sender's own parameters of the same name mean nothing."""
    assert (404, "a b") == rejection(f"{OWN}&statusCode=404&statusDescription=a%20b")
    assert rejection(f"statusCode=404&statusDescription=x&{OWN}") is None


@pytest.mark.parametrize("status", ["abc", "", "99", "1000", "-40", "4.4", "０４２", "099", "0400"])
def test_a_status_that_is_none_is_a_400(status):
    """Only 100 to 999 is a status."""
    with pytest.raises(Refusal) as caught:
        rejection(f"{OWN}&sb-hc-statusCode={status}")
    assert 400 == caught.value.status


def http(target, *headers, method="GET"):
    return HttpRequest.parse(RequestHead(method, target, headers))


def request_message(request, **changes):
    facts = {
        "address": "wss://relay.test/$hc/x?a",
        "identity": f"{GUID}_G0",
        "host": "relay.test",
        "remote": ("1.2.3.4", 5),
        "has_body": False,
        "needs_token": True,
    }
    return json.loads(request.message(**(facts | changes)))["request"]


@pytest.mark.parametrize(
    ("target", "seen"),
    [
        ("/x/a%20b?c=%20d", "/x/a b?c=%20d"),
        ("/x?a&&b=&sb-hc-token=t&", "/x?a&&b=&"),
        ("/x?sb-hc-id=1", "/x"),
        ("https://h:1/x/y?z", "/x/y?z"),
        ("/x/%c3%bc", "/x/\u00fc"),
        ("/x/%3Fa=b%23%0d%0A%7f%25", "/x/%3Fa=b%23%0d%0A%7f%"),
    ],
)
def test_the_listener_sees_a_decoded_path_and_the_senders_query(target, seen):
    """Characters that would change the meaning of the target stay encoded; the protocol's parameters are removed."""
    assert seen == http(target).target


def test_via_is_appended():
    """Proxies before the relay stay in the list."""
    assert "1.0 proxy, 1.1 relay.test" == request_message(http("/x", ("via", "1.0 proxy")))["requestHeaders"]["Via"]


def test_headers_of_one_connection_are_not_forwarded():
    """Host is kept."""
    headers = [
        ("Host", "h"),
        ("Connection", "X-Hop"),
        ("X-Hop", "1"),
        ("TE", "x"),
        ("Content-Length", "1"),
        ("Upgrade", "y"),
    ]
    assert {"Host": "h", "Via": "1.1 relay.test"} == request_message(http("/x", *headers))["requestHeaders"]


@pytest.mark.parametrize(
    ("target", "headers", "needs_token", "kept"),
    [
        ("/x", [], True, False),
        ("/x", [], False, True),
        ("/x?sb-hc-token=t", [], True, True),
        ("/x", [("servicebusauthorization", "t")], True, True),
    ],
    ids=["it is the token", "no token is needed", "token in the query", "token in its header"],
)
def test_authorization_is_removed_only_if_it_was_the_token(target, headers, needs_token, kept):
    """Otherwise it belongs to the application."""
    request = http(target, ("Authorization", "Basic x"), *headers)
    message = request_message(request, needs_token=needs_token)
    assert kept == ("Authorization" in message["requestHeaders"])
    assert "servicebusauthorization" not in message["requestHeaders"]


def test_the_parameter_takes_precedence_in_http_requests():
    """The order is parameter, header, Authorization."""
    headers = [("ServiceBusAuthorization", "b"), ("Authorization", "c")]
    assert ["a", "b", "c"] == [
        http("/x?sb-hc-token=a", *headers).token,
        http("/x", *headers).token,
        http("/x", headers[1]).token,
    ]


def test_headers_that_do_not_fit_into_a_control_message_are_a_431():
    """JSON may be longer than the head that was received."""
    with pytest.raises(Refusal) as caught:
        request_message(http("/x", ("X", '"' * 40_000)))
    assert 431 == caught.value.status
