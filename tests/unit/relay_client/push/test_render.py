"""Facts about the result of a push as text."""

from relay_client.push.deliver import Outcome
from relay_client.push.render import as_object, briefly, show_outcome
from relay_core.agent_api.members import Member
from relay_core.agent_api.push import Pushed, State


def done(*ranks: int, changed: tuple[str, ...] = ("f()",), kept: tuple[str, ...] = ()) -> Pushed:
    members = tuple(Member(5678 + rank, rank) for rank in ranks)
    return Pushed(members, State.DONE, changed=changed, kept=kept)


def same_step(*ranks: int) -> tuple[tuple[Member, ...], ...]:
    return (done(*ranks).members,)


def test_same_step():
    """The first line names the ranks and the function; what is equal in several ranks is one line."""
    outcome = Outcome(
        (done(0, 2, kept=("a stays",)), done(1, 3, kept=("a stays", "b stays"))), "train_step", same_step(0, 1, 2, 3)
    )
    assert [
        "src/model.py: replaced in ranks 0-3 at the same step; takes effect at the next call to train_step",
        "ranks 0-3: f()",
        "ranks 0-3: a stays",
        "ranks 1,3: b stays",
    ] == show_outcome("src/model.py", outcome).splitlines()
    assert ("train_step", True) == (as_object(outcome)["function"], as_object(outcome)["same_step"])


def test_step_that_is_not_known():
    """Ranks whose collective operations were not counted may have been at different steps, and the line states this."""
    outcome = Outcome((done(0, 1),), "train_step")
    assert (
        "m.py: replaced in ranks 0-1 while all were held, perhaps not at the same step; takes effect at the next call "
        "to train_step"
    ) == show_outcome("m.py", outcome).splitlines()[0]
    assert ("train_step", False) == (as_object(outcome)["function"], as_object(outcome)["same_step"])
    stages = tuple(tuple(Member(5678 + rank, rank) for rank in ranks) for ranks in ((0, 1), (2, 3), (4,)))
    assert (
        "m.py: replaced in ranks 0-4 while all were held, perhaps not at the same step (at the same step: ranks 0-1; "
        "ranks 2-3); takes effect at the next call to step"
    ) == show_outcome("m.py", Outcome((done(0, 1, 2, 3, 4),), "step", same_step=stages)).splitlines()[0]


def test_constants():
    """If no function changes, the call at which the ranks were held already reads the new constants."""
    outcome = Outcome((done(0, 1, changed=("LR = ()", "new() (new)")),), "train_step", same_step(0, 1))
    assert (
        "m.py: replaced in ranks 0-1 at the same step; takes effect in the current call to train_step"
        == show_outcome("m.py", outcome).splitlines()[0]
    )


def test_at_once():
    """The text names the reason why ranks were not held, and ranks that were lost."""
    outcome = Outcome((done(0),), halted="rank 1 is waiting for a debugger")
    assert (
        "m.py: replaced in rank 0 immediately, because rank 1 is waiting for a debugger"
        == (show_outcome("m.py", outcome).splitlines()[0])
    )
    assert as_object(outcome)["stopped"]
    lost = Pushed((Member(5679, 1),), error="it has exited")
    assert [
        "m.py: replaced in rank 0 immediately, not at the same step",
        "rank 0: only line numbers changed",
        "rank 1: not replaced: it has exited",
    ] == show_outcome("m.py", Outcome((done(0, changed=()), lost))).splitlines()


def test_nothing_to_replace():
    """If all ranks execute this code already, there is one line, and those for what stays as it is."""
    same = [Pushed(done(rank, changed=()).members, State.DONE, is_same=True) for rank in (0, 1)]
    assert "m.py: nothing to replace: ranks 0-1 are already executing this code" == show_outcome(
        "m.py", Outcome((*same,))
    )
    assert [
        "m.py: replaced in rank 1 immediately, not at the same step",
        "rank 0: nothing to replace",
        "rank 1: f()",
    ] == show_outcome("m.py", Outcome((same[0], done(1)))).splitlines()


def test_rank_that_has_the_code_already():
    """The first line is about the ranks in which something was replaced."""
    same = Pushed(done(1).members, State.DONE, is_same=True)
    changed = done(0, 2, changed=("LR = 0.2",))
    assert [
        "m.py: replaced in ranks 0,2 at the same step; takes effect in the current call to step",
        "rank 1: nothing to replace",
        "ranks 0,2: LR = 0.2",
    ] == sorted(show_outcome("m.py", Outcome((same, changed), "step", same_step(0, 2))).splitlines())


def test_nothing_replaced_although_the_file_differs():
    """If something in the file is not in effect, the first line does not state that the code is already executed."""
    same = Pushed(done(0).members, State.DONE, kept=("LR keeps 0.1; the file has 0.5",), is_same=True)
    assert [
        "m.py: nothing was replaced in rank 0, but parts of the file may not be in effect",
        "rank 0: LR keeps 0.1; the file has 0.5",
    ] == show_outcome("m.py", Outcome((same,))).splitlines()


def test_one_line():
    """The line for a save has the summary and the first changes; it states how many are left out."""
    outcome = Outcome((done(0, 1),), "step", same_step(0, 1))
    assert (
        "m.py: replaced in ranks 0-1 at the same step; takes effect at the next call to step; ranks 0-1: f()"
    ) == briefly(show_outcome("m.py", outcome))
    outcome = Outcome((done(0, kept=("a stays", "b stays", "c stays")),))
    assert (
        "m.py: replaced in rank 0 immediately, not at the same step; rank 0: f(); rank 0: a stays; "
        "2 more (--json prints all)"
    ) == briefly(show_outcome("m.py", outcome))
