"""Facts about forwarded HTTP headers."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay_core.errors import ProtocolError
from relay_core.hyco.http import check_headers, forwardable


@pytest.mark.parametrize("name", ["", "a b", "a:b", "a\r\nb", "\x00", "ä", "a\n"])
def test_invalid_names_are_refused(name: str) -> None:
    """A name is a token of RFC 9110."""
    with pytest.raises(ProtocolError, match="name"):
        check_headers({name: "x"})


@pytest.mark.parametrize("value", ["a\r\nSet-Cookie: b", "a\nb", "a\rb", "\x00", "a\x7f"])
def test_control_characters_in_values_are_refused(value: str) -> None:
    """A line break would add a header; the error does not repeat the value."""
    with pytest.raises(ProtocolError) as raised:
        check_headers({"X-App": value})
    assert value not in str(raised.value)


def test_usual_headers_are_valid() -> None:
    """Tabs, blanks and letters of any language may be in a value, and a name may be a digit."""
    check_headers({"0": "a\tb", "X-App": "grüße 漢", "Empty": ""})


def test_headers_of_one_connection_are_removed() -> None:
    """Framing headers and those that Connection names concern one hop only."""
    headers = {"connection": "close, X-Hop", "x-hop": "1", "Transfer-Encoding": "chunked", "Host": "h", "Via": "1.1 a"}
    assert {"Host": "h", "Via": "1.1 a"} == forwardable(headers)
    assert {"Host": "h"} == forwardable(headers, without={"via"})


@given(st.dictionaries(st.text(), st.text()))
def test_no_checked_header_can_add_a_line(headers: dict[str, str]) -> None:
    """Whatever passes has neither line breaks nor NUL, and no colon or blank in its name."""
    with contextlib.suppress(ProtocolError):
        check_headers(headers)
        assert not any(mark in text for pair in headers.items() for text in pair for mark in "\r\n\0")
        assert not any(mark in name for name in headers for mark in ": \t")
