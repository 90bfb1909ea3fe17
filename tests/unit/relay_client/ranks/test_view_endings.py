"""Facts about how the end of a target is described."""

import pytest

from relay_client.ranks.view import exit_code, how_ended, is_consequence
from relay_core.agent_api.announcement import Ending


def test_an_end_of_unknown_kind_is_only_an_end() -> None:
    """Without status and signal, no number is invented."""
    assert ("has ended", None) == (how_ended(Ending(5678)), exit_code(Ending(5678)))
    assert "was killed by signal 64" == how_ended(Ending(5678, signal=64))


def test_a_signal_has_its_name_on_linux(monkeypatch: pytest.MonkeyPatch) -> None:
    """The names are those of the job's system, also if relay-client runs on one that numbers signals differently."""
    monkeypatch.delattr("signal.SIGKILL")
    monkeypatch.delattr("signal.SIGUSR1")
    assert "was killed by SIGKILL (the usual cause is lack of memory)" == how_ended(Ending(5678, signal=9))
    assert "was killed by SIGUSR1" == how_ended(Ending(5678, signal=10))


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        ("RuntimeError: [gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.4]:28012", True),
        ("torch.distributed.DistBackendError: NCCL error: ncclRemoteError: A call failed", True),
        ("RuntimeError: Broken pipe", True),
        ("ValueError: no peer", False),
        ("", False),
    ],
)
def test_consequences_of_another_crash(error: str, expected: bool) -> None:
    """Errors of a lost connection to another rank are distinguished from all other errors."""
    assert expected is is_consequence(error)
