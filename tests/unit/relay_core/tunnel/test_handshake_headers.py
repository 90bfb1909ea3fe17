"""Facts about the header by which a client asks for a tunnel before it is accepted."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay_core.tunnel.handshake import TunnelHeader, misdirected, refusing_agent

ids = st.text("0123456789abcdef-", min_size=1, max_size=40)


@given(ids, st.none() | ids)
def test_encoded_headers_are_read_back(client: str, agent: str | None) -> None:
    """What one side encodes, the other side parses to the same fields."""
    header = TunnelHeader(client, agent)
    assert header == TunnelHeader.parse(header.encode())


@pytest.mark.parametrize("text", [None, "", "v=2; client=a", "client=a", "v=1", "v=1; client=", "v=1; agent=b"])
def test_other_headers_ask_for_nothing(text: str | None) -> None:
    """A missing header, another version, or one without a client is not a request for a tunnel."""
    assert TunnelHeader.parse(text) is None


def test_unknown_fields_are_skipped() -> None:
    """A later version may add fields."""
    assert TunnelHeader("a", "b") == TunnelHeader.parse("v=1; new=1; client=a;agent=b; flag")


@given(st.text(max_size=60))
def test_any_text_is_parsed(text: str) -> None:
    """No text raises anything."""
    assert isinstance(TunnelHeader.parse(text), TunnelHeader | None)


def test_a_refusal_names_its_agent() -> None:
    """The client reads the id of the agent that refused it."""
    assert "1f7e-4" == refusing_agent(misdirected("this is another agent", "1f7e-4"))


@pytest.mark.parametrize("reason", ["", "this is another agent", "agent=x", "a; agent=", "a; agent=x y", "a; agent=x;"])
def test_a_refusal_that_names_nobody(reason: str) -> None:
    """A text of another form names no agent."""
    assert refusing_agent(reason) is None
