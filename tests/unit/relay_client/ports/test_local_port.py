"""Facts about the grammar of --forward."""

import pytest

from relay_client.agents.roster import Destination
from relay_client.ports.local_port import LocalPort, debugger_ports, parse_forwards
from relay_core.errors import UsageError


@pytest.mark.parametrize(
    ("text", "local", "remote", "node"),
    [("6006", 6006, 6006, None), ("6006:16006", 16006, 6006, None), ("1/6006", 6006, 6006, 1), ("0/1:2", 2, 1, 0)],
)
def test_good_forwards(text: str, local: int, remote: int, node: int | None) -> None:
    """A forward has a remote port, and optionally a local port and a node."""
    assert [LocalPort(local, Destination(remote, is_forward=True, node_rank=node))] == parse_forwards([text])


@pytest.mark.parametrize("text", ["", "0", "70000", "6006:", "6006:70000", "x/6006", "1:2:3", "6006-6007", "٥"])
def test_bad_forwards(text: str) -> None:
    """Invalid values are rejected with one sentence and a hint."""
    with pytest.raises(UsageError, match="invalid port") as caught:
        parse_forwards([text])
    assert caught.value.hint


def test_a_local_port_is_used_once() -> None:
    """Two forwards cannot share a local port."""
    with pytest.raises(UsageError, match="local port 6006 is used twice"):
        parse_forwards(["0/6006", "1/6006"])


def test_names_of_ports() -> None:
    """The name of a local port includes its destination if that differs."""
    (plain,) = debugger_ports([5678])
    (moved,) = parse_forwards(["1/6006:16006"])
    assert ["port 5678", "port 16006 (to port 6006 on node 1)"] == [str(plain), str(moved)]
