"""Facts about the sentences that an editor shows."""

from dataclasses import replace

from relay_client.editor.ending import SessionEnd
from relay_client.editor.messages import JobView, waiting_text
from relay_client.editor.notices import Outbox
from relay_core.agent_api.announcement import Ending
from relay_core.layers.layer import ToLocal


def test_a_wait_without_a_reason_has_one_nevertheless() -> None:
    """Before the first attempt has ended, the agent is being looked for."""
    text = waiting_text(JobView(5678, "myhc"), "", 3)
    assert "waiting for port 5678 on 'myhc' (3 s so far): looking for its agent" == text


def test_an_end_names_the_job() -> None:
    """The only process of a job is the job."""
    alone = JobView(5678, "myhc", label="rank 0 on node", is_alone=True)
    outbox = Outbox()
    SessionEnd(outbox).show(replace(alone, ending=Ending(5678)), "")
    (line,) = [output.event() for output in outbox.take() if isinstance(output, ToLocal)]
    assert line is not None
    assert "relay-client: the job has ended\n" == line["body"]["output"]
