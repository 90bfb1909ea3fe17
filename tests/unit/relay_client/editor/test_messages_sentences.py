"""Facts about the sentences that an editor shows."""

from relay_client.editor.job_view import JobView
from relay_client.editor.messages import ended_text, waiting_text
from relay_core.agent_api.announcement import Ending


def test_a_wait_without_a_reason_has_one_nevertheless() -> None:
    """Before the first attempt has ended, the agent is being looked for."""
    text = waiting_text(JobView(5678, "myhc"), "", 3)
    assert "waiting for port 5678 on 'myhc' (3 s so far): looking for its agent" == text


def test_an_end_names_the_job() -> None:
    """The only process of a job is the job."""
    alone = JobView(5678, "myhc", label="rank 0 on node", is_alone=True)
    assert "the job has ended" == ended_text(alone, Ending(5678))
