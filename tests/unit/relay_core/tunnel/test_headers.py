"""Facts about what a client and an agent say to each other before a tunnel is accepted."""

import pytest

from relay_core.tunnel.headers import TunnelHeader, misdirected, refusing_agent


@pytest.mark.parametrize("header", [TunnelHeader("me"), TunnelHeader("me", "1f7e-4")])
def test_a_header_survives_the_way(header: TunnelHeader) -> None:
    """What a client encodes is what an agent reads."""
    assert header == TunnelHeader.parse(header.encode())


@pytest.mark.parametrize("text", [None, "", "v=2; client=me", "v=1", "client=me"])
def test_what_is_no_header(text: str | None) -> None:
    """A missing header, another version and a header without a client are not read."""
    assert TunnelHeader.parse(text) is None


def test_a_refusal_names_its_agent() -> None:
    """The client reads the id of the agent that refused it."""
    assert "1f7e-4" == refusing_agent(misdirected("this is another agent", "1f7e-4"))


@pytest.mark.parametrize("reason", ["", "this is another agent", "agent=x", "a; agent=", "a; agent=x y", "a; agent=x;"])
def test_a_refusal_that_names_nobody(reason: str) -> None:
    """A text of another form names no agent."""
    assert refusing_agent(reason) is None
