"""Facts about the ranks and the timeout of `relay-client wait`."""

from dataclasses import replace

import pytest

from relay_client.cli import make_parser, wait
from relay_client.cli.wait import missing_ranks, waiting_text
from relay_client.control.state import ClientId, Status
from relay_client.ranks.record import Node, Target, target_record
from relay_core.agent_api.announcement import Attachment, State, TargetInfo
from relay_core.errors import NoListener, RelayUnreachable

TARGETS = [
    *map(
        target_record,
        (
            TargetInfo(5678, rank=0, state=State.RUNNING),
            TargetInfo(5679, rank=1, state=State.WAITING),
            TargetInfo(5680, rank=2, state=State.RUNNING, attachment=Attachment("bob@laptop")),
            TargetInfo(5681, rank=3, state=State.CRASHED, attachment=Attachment("bob@laptop")),
            TargetInfo(5999),
        ),
    )
]


@pytest.mark.parametrize(
    ("state", "missing"),
    [("any", [4]), ("waiting", [0, 2, 3, 4]), ("attached", [0, 1, 4]), ("crashed", [0, 1, 2, 4])],
)
def test_missing_ranks(state: str, missing: list[int]) -> None:
    """Ranks without a target and ranks in another state are missing; rank 3 is in two states."""
    assert missing == missing_ranks(range(5), TARGETS, state)


@pytest.mark.parametrize(
    ("state", "ranks", "text"),
    [
        ("any", [4, 5], "waiting for ranks 4-5 to register; registered: ranks 0-3"),
        ("crashed", [0], "waiting for rank 0 to crash; rank 0 running"),
        ("crashed", [0, 2], "waiting for ranks 0,2 to crash; rank 0 running, rank 2 held by bob@laptop"),
        (
            "crashed",
            [1, 4],
            "waiting for ranks 1,4 to crash; rank 1 waiting for a debugger, rank 4 not registered",
        ),
        ("waiting", [4, 5], "waiting for ranks 4-5 to wait for a debugger; ranks 4-5 not registered"),
        (
            "attached",
            [0, 1],
            "waiting for a debugger to attach to ranks 0-1; rank 0 running, rank 1 waiting for a debugger",
        ),
    ],
)
def test_what_is_shown_while_waiting(state: str, ranks: list[int], text: str) -> None:
    """The line states what is awaited, and in what state the ranks are."""
    assert text == waiting_text(ranks, TARGETS, state, NoListener("no other agent is listening on 'myhc'"))


def test_why_no_rank_is_found() -> None:
    """Without a registered rank, or a working relay, the line contains the reason."""
    nobody, broken = NoListener("no agent is listening on 'myhc'"), RelayUnreachable("the relay is down")
    assert "waiting for rank 0 to crash: no agent is listening on 'myhc'" == waiting_text([0], [], "crashed", nobody)
    assert "waiting for rank 0 to crash: the relay is down" == waiting_text([0], TARGETS, "crashed", broken)


def test_why_a_known_rank_is_not_found() -> None:
    """The state of the tunnel to its node is the reason, with the cause of this state if it is known."""
    client = ClientId("c", 1, "localhost", "myhc", "forward", 0.0, "/", "1")
    for node in (Node("a", "vm", "connecting"), Node("a", "vm", "reconnecting", link_reason="the network is down")):
        known = Status(client, 0.0, (replace(node, targets=(Target(5678, 0),)),))
        why = f": {node.link_reason}" if node.link_reason else ""
        assert f"the tunnel to vm is {node.link}{why}" == wait._why_missing(known, [0], "myhc").sentence


@pytest.mark.parametrize(("options", "seconds"), [([], 600), (["--timeout", "10m"], 600), (["--timeout", "2.5"], 2.5)])
def test_a_timeout_is_a_duration(options: list[str], seconds: float) -> None:
    """It is in seconds unless a unit follows."""
    assert seconds == make_parser().parse_args(["wait", "--ranks", "0", *options]).timeout


@pytest.mark.parametrize("text", ["0", "soon", "-1"])
def test_a_timeout_is_above_zero(capfd: pytest.CaptureFixture[str], text: str) -> None:
    """Other values are usage errors that name the option."""
    with pytest.raises(SystemExit) as ended:
        make_parser().parse_args(["wait", "--ranks", "0", f"--timeout={text}"])
    assert 2 == ended.value.code
    assert f"argument --timeout: invalid duration: '{text}'. hint: use" in capfd.readouterr().err
