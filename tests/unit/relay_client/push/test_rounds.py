"""Facts about the rounds that bring all ranks to the same call, with simulated ranks."""

from relay_client.push.rounds import NESTED_AFTER, Rounds
from relay_core.agent_api.members import Member
from relay_core.agent_api.push import Pushed, State


def result(state: State, place: str = "", ranks: int = 1) -> Pushed:
    return Pushed(tuple(Member(5678 + rank, rank) for rank in range(ranks)), state, place=place)


class Job:
    """Ranks that wait for each other in the middle of each step, and are held at the start of a step.

    Args:
        steps: The step of each rank whose start is its next call of a changed function.
        arrived: How many collectives each rank has entered.
    """

    def __init__(self, steps: list[int]) -> None:
        self.steps = steps
        self.held = [False] * len(steps)

    def round(self, *, again: bool) -> list[Pushed]:
        """Let all ranks proceed as far as they can."""
        passing = [again and held for held in self.held]
        self.held = [False] * len(self.steps)
        moved = True
        while moved:
            moved = False
            for rank, step in enumerate(self.steps):
                # A rank starts step n after all ranks have started step n - 1, for the collective in it.
                if not self.held[rank] and all(other >= step for other in self.steps):
                    if passing[rank]:
                        passing[rank] = False
                        self.steps[rank] += 1
                    else:
                        self.held[rank] = True
                    moved = True
        return [result(State.HELD, "f") if held else result(State.RUNNING) for held in self.held]


def test_one_rank_is_behind_the_others():
    """A rank that is held one call before the others continues, and all are then held at the same step."""
    job, rounds = Job([5, 6, 6, 6]), Rounds(60)
    while (seconds := rounds.next()) is not None:
        rounds.received(job.round(again=rounds.again), seconds)
    assert (True, [6, 6, 6, 6]) == (rounds.is_aligned, job.steps)


def test_all_are_held_at_once():
    """Ranks that are held at the same function need one round."""
    rounds = Rounds(60)
    assert 0.5 == rounds.next()
    rounds.received([result(State.HELD, "f", 4)], 0.1)
    assert (True, "f", None) == (rounds.is_aligned, rounds.place, rounds.next())


def test_different_functions():
    """Ranks that are held at different functions continue to the one at which most are held."""
    rounds = Rounds(60)
    rounds.next()
    rounds.received([result(State.HELD, "f"), result(State.HELD, "g", 3)], 0.1)
    assert (False, "g", False) == (rounds.is_aligned, rounds.place, rounds.again)


def test_rounds_become_longer_and_end():
    """Each round takes twice as long until the time is used up; later ones count calls inside changed functions."""
    rounds, lengths, nested = Rounds(60), [], []
    while (seconds := rounds.next()) is not None:
        lengths.append(seconds)
        nested.append(rounds.nested)
        rounds.received([result(State.RUNNING), result(State.RUNNING)], seconds)
    assert ([0.5, 1.0, 2.0, 4.0, 5.0, 5.0], 60) == (lengths[:6], sum(lengths))
    assert [sum(lengths[:index]) >= NESTED_AFTER for index in range(len(lengths))] == nested
    assert not rounds.is_aligned


def test_job_is_not_held_for_long():
    """Rounds in which a rank is held, and the job therefore stands, take a twelfth of the time limit altogether."""
    rounds, lengths = Rounds(60), []
    while (seconds := rounds.next()) is not None:
        lengths.append(seconds)
        rounds.received([result(State.RUNNING), result(State.HELD, "f")], seconds)
    assert [0.5, 1.0, 2.0, 1.5] == lengths


GROUP = "0 0-1"


def counted(state: State, count: int, before: int | None = None, *, rank: int = 0, group: str = GROUP) -> Pushed:
    """Return the result of a rank that is held at its first call since it began so many operations of a group."""
    if state is not State.HELD:
        return Pushed((Member(5678 + rank, rank),), state, counts={group: count})
    earlier = {group: count - 1 if before is None else before}
    return Pushed((Member(5678 + rank, rank),), state, place="f", counts={group: count}, before=earlier)


def test_ranks_at_different_steps():
    """Ranks that are held at the same function, and have begun fewer operations than others, continue to that step."""
    rounds = Rounds(60)
    rounds.next()
    rounds.received([counted(State.HELD, 43), counted(State.HELD, 3, rank=1)], 0.1)
    assert (False, False, {GROUP: 43}) == (rounds.is_aligned, rounds.again, rounds.targets)
    rounds.next()
    rounds.received([counted(State.HELD, 43), counted(State.HELD, 43, rank=1)], 0.1)
    assert (True, 1) == (rounds.is_aligned, len(rounds.same_step))


def test_steps_without_an_operation():
    """If a rank had begun the last operation before its previous call, all ranks continue to the next operation."""
    rounds = Rounds(60)
    rounds.next()
    rounds.received([counted(State.HELD, 7, 7), counted(State.HELD, 7, rank=1)], 0.1)
    assert (False, {GROUP: 8}) == (rounds.is_aligned, rounds.targets)
    rounds.next()
    rounds.received([counted(State.RUNNING, 7), counted(State.HELD, 8, rank=1)], 0.5)
    assert (False, {GROUP: 8}) == (rounds.is_aligned, rounds.targets)
    rounds.next()
    rounds.received([counted(State.HELD, 8), counted(State.HELD, 8, rank=1)], 0.5)
    assert (True, 1) == (rounds.is_aligned, len(rounds.same_step))


def test_operation_that_does_not_come():
    """If no rank begins another operation for a quarter of the time limit, all are held without a comparison."""
    rounds, elapsed = Rounds(60), 0.0
    seconds = rounds.next()
    while seconds is not None and rounds.targets != {GROUP: 7}:
        is_first = not elapsed
        state = State.HELD if is_first else State.RUNNING
        elapsed += seconds
        rounds.received([counted(state, 7, 7), counted(state, 7, 7, rank=1)], seconds)
        seconds = rounds.next()
    assert 15 <= elapsed < 30
    rounds.received([counted(State.HELD, 7, 7), counted(State.HELD, 7, 7, rank=1)], 0.1)
    assert (True, 2) == (rounds.is_aligned, len(rounds.same_step))


def test_rank_that_waits_for_one_that_is_held():
    """A rank that is still running sets the step, too; ranks that are held there already stay, unless nothing moves."""
    rounds = Rounds(60)
    rounds.next()
    rounds.received([counted(State.RUNNING, 43), counted(State.HELD, 3)], 0.5)
    assert ({"0 0-1": 43}, False) == (rounds.targets, rounds.again)
    for moves in (True, False):
        rounds.next()
        rounds.received([counted(State.RUNNING, 40), counted(State.HELD, 43)], 1)
        assert moves != rounds.again


def test_ranks_without_counts():
    """Without counts, or without any operation, ranks at the same function are not known to be at the same step."""
    for counts in ({}, {"0 0-1": 0}):
        rounds = Rounds(60)
        rounds.next()
        held = Pushed((Member(5678, 0), Member(5679, 1)), State.HELD, place="f", counts=counts)
        rounds.received([held], 0.1)
        assert (True, 2) == (rounds.is_aligned, len(rounds.same_step))


def test_failed_rank():
    """A rank that fails ends the rounds."""
    rounds = Rounds(60)
    rounds.next()
    rounds.received([result(State.HELD, "f"), Pushed(error="gone")], 0.1)
    assert ("gone", None) == (rounds.failed.error, rounds.next())


def test_no_further_call():
    """A rank that is executing all changed functions, none of which is called in a loop, ends the rounds."""
    for functions, is_stuck in (((), True), (("step",), False)):
        rounds = Rounds(60)
        rounds.next()
        rounds.received(
            [result(State.HELD, "f"), Pushed(state=State.RUNNING, running=("main",), functions=functions)], 1
        )
        assert (is_stuck, is_stuck) == (rounds.is_stuck, rounds.next() is None)


def test_time_that_is_left():
    """While ranks are held, the rounds end after a twelfth of the time limit; otherwise, after the rest of it."""
    rounds = Rounds(60)
    rounds.received([result(State.RUNNING)], 1)
    assert 59 == rounds.left
    rounds.received([result(State.RUNNING), result(State.HELD, "f")], 1)
    assert 4 == rounds.left
    rounds.received([result(State.RUNNING)], 1)
    assert 57 == rounds.left
