"""Facts about the sentences that an editor shows."""

import pytest

from relay_client.editor.job_view import JobView
from relay_client.editor.sentences import ended_text, exit_code, waiting_text
from relay_core.agent_api.ending import Ending

ALONE = JobView(5678, "myhc", label="rank 0 on node", is_alone=True)


def test_a_wait_without_a_reason_has_one_nevertheless() -> None:
    """Before the first attempt has ended, the agent is being looked for."""
    assert "waiting for port 5678 on 'myhc': looking for its agent, 3 s" == waiting_text(JobView(5678, "myhc"), "", 3)


def test_an_end_of_unknown_kind_is_only_an_end() -> None:
    """Without status and signal, no number is invented."""
    assert ("the job has ended", None) == (ended_text(ALONE, Ending(5678)), exit_code(Ending(5678)))
    assert "the job was killed (signal 64, unknown)" == ended_text(ALONE, Ending(5678, signal=64)).replace(
        "SIGRTMAX", "unknown"
    )


def test_a_signal_has_its_name_on_linux(monkeypatch: pytest.MonkeyPatch) -> None:
    """The names are those of the job's system, also if relay-client runs on one that numbers signals differently."""
    monkeypatch.delattr("signal.SIGKILL")
    monkeypatch.delattr("signal.SIGUSR1")
    texts = [ended_text(ALONE, Ending(5678, signal=number)) for number in (9, 10)]
    assert [
        "the job was killed (signal 9, SIGKILL; the usual cause is lack of memory)",
        "the job was killed (signal 10, SIGUSR1)",
    ] == texts
