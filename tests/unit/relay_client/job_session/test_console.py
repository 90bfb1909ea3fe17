"""Facts about the debug console of all ranks."""

from tests.support.sessions.scripted_ranks import attached


def test_output_of_a_job_names_its_rank() -> None:
    """Each line has its rank in front, also one that arrives in parts, and one that another rank interrupts."""
    stage, ranks = attached(0, 1)
    ranks[0].output("loss 1\nloss 2\n")
    stage.settle()
    ranks[0].output("half ")
    stage.settle()
    ranks[0].output("line\n")
    stage.settle()
    ranks[0].output("half")
    stage.settle()
    ranks[1].output("other\n")
    stage.settle()
    shown = "".join(body["output"] for body in stage.events("output"))
    assert "rank 0 | loss 1\nrank 0 | loss 2\nrank 0 | half line\nrank 0 | half\nrank 1 | other\n" == shown


def test_telemetry_is_not_shown() -> None:
    """Debugpy's telemetry of each rank is dropped."""
    stage, ranks = attached(0)
    ranks[0].output("debugpy", "telemetry")
    stage.settle()
    assert [] == stage.events("output")


def test_the_same_line_of_several_ranks_is_shown_once() -> None:
    """A line about one connection is shown once, with all ranks that it is about."""
    stage, ranks = attached(0, 1, 2)
    for rank in ranks:
        status = 1 if rank.rank == 1 else 0
        rank.output(f"relay-client: rank {rank.rank} on node-1 ended with status {status}\n", "console")
    stage.settle()
    stage.wait(1)
    assert ["ranks 0, 2 ended with status 0", "rank 1 on node-1 ended with status 1"] == stage.lines()


def test_the_verb_agrees_with_several_ranks() -> None:
    """A line about one rank has a verb in the plural if it is about several."""
    stage, ranks = attached(0, 1)
    for rank in ranks:
        rank.output(f"relay-client: rank {rank.rank} on node-1 was killed by SIGTERM\n", "console")
    stage.settle()
    stage.wait(1)
    assert ["ranks 0-1 were killed by SIGTERM"] == stage.lines()


def test_the_reason_comes_first() -> None:
    """A line about the whole job follows the lines about its ranks, which may still be waiting for more ranks."""
    stage, (rank,) = attached(0)
    rank.output("relay-client: rank 0 on node-1 was killed by SIGTERM\n", "console")
    stage.settle()
    stage.session.show("all ranks have ended; waiting 30 s for the job to restart")
    stage.flush()
    assert ["rank 0 on node-1 was", "all ranks have ended"] == [line[:20] for line in stage.lines()]


def test_a_line_without_a_rank_is_shown_once() -> None:
    """What all ranks of a node report alike is shown once."""
    stage, ranks = attached(0, 1)
    for rank in ranks:
        rank.output("relay-client: train.py differs from the job's file\n", "important")
    stage.settle()
    stage.wait(1)
    assert ["train.py differs from the job's file"] == stage.lines()


def test_the_start_of_a_debugger_is_no_line() -> None:
    """A rank whose debugger takes a second to start is not reported as waiting; one that takes longer is."""
    stage, ranks = attached(0)
    ranks[0].output("relay-client: waiting for rank 0 on node-1 (1 s so far): the debugger is starting\n", "console")
    ranks[0].output("relay-client: waiting for rank 0 on node-1 (10 s so far): the debugger is starting\n", "console")
    stage.settle()
    stage.wait(1)
    assert ["waiting for rank 0 on node-1 (10 s so far): the debugger is starting"] == stage.lines()
