"""Facts about noticing the end of a debug session."""

from relay_agent.agent.layers import EndObserver
from relay_core.dap.framing import encode
from relay_core.layers.layer import EndLocal, EndPeer, ToPeer
from tests.support.sessions.layers import Alone

TERMINATED = encode({"seq": 9, "type": "event", "event": "terminated"})


def observed(*, is_dap: bool = True) -> tuple[Alone[EndObserver], list[bool]]:
    ends: list[bool] = []
    return Alone(EndObserver(lambda: ends.append(True), is_dap=is_dap)), ends


def test_the_end_is_reported_after_it_was_passed_on() -> None:
    """The bytes pass unchanged, in parts too; the report follows at once, and only once."""
    for cut in range(1, len(TERMINATED)):
        layer, ends = observed()
        assert [ToPeer(TERMINATED[:cut])] == layer.receive_local(TERMINATED[:cut], 0)
        assert [ToPeer(TERMINATED[cut:])] == layer.receive_local(TERMINATED[cut:], 0)
        assert ([], 0.0) == (ends, layer.next_deadline())
        assert ([], []) == (layer.tick(0), layer.tick(1))
        assert ([True], None) == (ends, layer.next_deadline())
        assert [EndPeer(), EndLocal()] == layer.receive_local_eof(1)


def test_a_closed_connection_is_an_end() -> None:
    """A debugger that closes its connection has ended, too, in both directions, whatever the editor's socket does."""
    layer, ends = observed()
    assert [EndPeer(), EndLocal()] == layer.receive_local_eof(0)
    layer.tick(0)
    assert [True] == ends


def test_bytes_of_another_protocol_are_not_the_end() -> None:
    """A transfer through a forwarded port is not searched; its end is EOF."""
    layer, ends = observed(is_dap=False)
    layer.receive_local(TERMINATED, 0)
    assert (None, []) == (layer.next_deadline(), ends)
    assert [EndPeer()] == layer.receive_local_eof(0)
    layer.tick(0)
    assert [True] == ends


def test_other_messages_are_not_the_end() -> None:
    """Text of the job is not an event, even if it quotes one."""
    layer, ends = observed()
    layer.receive_local(encode({"seq": 9, "type": "event", "event": "output", "body": {"output": '"terminated"'}}), 0)
    assert (None, []) == (layer.next_deadline(), ends)
