"""Facts about one debug session for all ranks, with scripted ranks."""

import re
from typing import Any

import pytest

from relay_core.dap.messages import FIRST_SNAPSHOT
from tests.support.sessions.scripted_ranks import FILE, MAIN, ScriptedRank, Stage, attached, stopped


def no_stop(_rank: ScriptedRank) -> None:
    """What a rank does that runs on."""


def test_an_editor_attaches_before_any_rank_is_there() -> None:
    """`initialize`, `attach` and `configurationDone` are answered without ranks, and breakpoints are not verified."""
    stage, _ = attached()
    found = stage.ask("setBreakpoints", source={"path": FILE}, breakpoints=[{"line": 10}])
    assert [False] == [each["verified"] for each in found["breakpoints"]]
    assert "no rank has confirmed this breakpoint yet" == found["breakpoints"][0]["message"]


def test_threads_are_named_after_their_ranks() -> None:
    """Each thread of each rank has an id of its own, although the ranks use the same ones."""
    stage, _ = attached(0, 1)
    names = ["rank 0 · MainThread", "rank 0 · Thread-1", "rank 1 · MainThread", "rank 1 · Thread-1"]
    threads = stage.ask("threads")["threads"]
    assert names == [each["name"] for each in threads]
    assert 4 == len({each["id"] for each in threads})


def test_a_late_rank_receives_everything_before_it_runs() -> None:
    """Breakpoints and exception filters reach a rank that comes late between `attach` and `configurationDone`."""
    stage, _ = attached(0)
    stage.ask("setExceptionBreakpoints", filters=["uncaught"])
    late = stage.join(1)
    stage.settle()
    assert ["initialize", "attach", "setExceptionBreakpoints", "setBreakpoints", "configurationDone"] == late.names()[
        :5
    ]


def test_the_first_stop_takes_the_focus_and_the_others_follow() -> None:
    """Only the first `stopped` may move the editor's focus; none concerns other threads than its own."""
    stage, _ = stopped(0, 1, 2)
    main = {stage.thread(rank): rank for rank in range(3)}
    stops = [body for body in stage.events("stopped") if body["threadId"] in main]
    assert [(0, False), (1, True), (2, True)] == [
        (main[body["threadId"]], body.get("preserveFocusHint", False)) for body in stops
    ]
    assert {False} == {body["allThreadsStopped"] for body in stage.events("stopped")}


def test_a_step_moves_all_stopped_ranks_and_leaves_running_ones_alone() -> None:
    """`next` is sent to every stopped rank with its own thread, and to no other one."""
    stage, ranks = stopped(0, 1)
    running = stage.join(2)
    stage.settle()
    stage.ask("next", threadId=stage.thread(0))
    assert [1, 1, 0] == [rank.names().count("next") for rank in (*ranks, running)]
    assert [MAIN, MAIN] == [rank.log[rank.names().index("next")]["arguments"]["threadId"] for rank in ranks]


def test_the_rank_that_is_stepped_takes_the_focus_back() -> None:
    """After a step of rank 1 its stop moves the focus, also if rank 0 has stopped before."""
    stage, _ = stopped(0, 1)
    chosen = stage.thread(1)
    stage.forget()
    stage.ask("next", threadId=chosen)
    taking = [body["threadId"] for body in stage.events("stopped") if "preserveFocusHint" not in body]
    assert chosen == taking[-1]


def test_one_line_sums_up_a_step() -> None:
    """When all ranks have stopped, one line names where they are, the ranks as ranges."""
    stage, ranks = stopped(0, 1, 2, 3)
    ranks[2].line = 40
    stage.forget()
    stage.ask("next", threadId=stage.thread(0))
    assert ["ranks 0-1, 3 at train.py:11; rank 2 at train.py:41"] == stage.lines()


def test_a_rank_that_does_not_arrive_is_named() -> None:
    """After a moment the line names the ranks that have not stopped, with what they are doing."""
    stage, ranks = stopped(0, 1, 2, 3)
    ranks[2].moves = ranks[3].moves = no_stop
    stage.forget()
    stage.ask("next", threadId=stage.thread(0))
    assert [] == stage.lines()
    stage.wait(1)
    [wanted] = stage.wanted_places
    assert {2, 3} == {stage.ranks[number].rank for number in wanted}
    stage.session.stops.places_found({next(n for n, rank in stage.ranks.items() if rank.rank == 2): "in all_reduce"})
    stage.flush()
    assert ["ranks 0-1 at train.py:11; rank 2 in all_reduce; rank 3 running"] == stage.lines()


def test_a_step_that_nobody_finishes_is_summed_up() -> None:
    """A second after a step the line names what its ranks are doing, although none has stopped."""
    stage, ranks = stopped(0, 1)
    ranks[0].moves = no_stop
    stage.ask("evaluate", expression="@group 0", context="repl")
    stage.ask("next", threadId=stage.thread(0))
    stage.forget()
    stage.wait(1)
    [wanted] = stage.wanted_places
    stage.session.stops.places_found(dict.fromkeys(wanted, "in all_reduce"))
    stage.flush()
    together = "Continue brings them together"
    assert [f"rank 0 in all_reduce, waiting for rank 1; rank 1 at train.py:10; {together}"] == stage.lines()


def test_a_rank_that_never_answers_a_step_holds_nobody_up() -> None:
    """The step of the chosen rank is answered although another one is silent."""
    stage, ranks = stopped(0, 1)
    ranks[1].answers_steps = False
    stage.ask("next", threadId=stage.thread(0))
    stage.wait(3)
    assert "rank 0 at train.py:11; rank 1 running" == stage.lines()[-1]


@pytest.mark.parametrize(
    ("group", "moved"),
    [("all", [0, 1, 2, 3]), ("0,2-3", [0, 2, 3]), ("1", [1]), ("here", [0, 1, 3])],
)
def test_a_group_moves_alone(group: str, moved: list[int]) -> None:
    """`@group` in the debug console chooses the ranks that a step moves."""
    stage, ranks = stopped(0, 1, 2, 3)
    ranks[2].line = 70
    stage.ask("next", threadId=stage.thread(0))
    stage.ask("evaluate", expression=f"@group {group}", context="repl")
    stage.ask("next", threadId=stage.thread(0))
    assert moved == [rank.rank for rank in ranks if rank.names().count("next") == 2]


@pytest.mark.parametrize(
    ("group", "answer"),
    [
        ("all", "all ranks: ranks 0-1, 3"),
        ("0-1", "ranks 0-1"),
        ("0,3", "ranks 0, 3"),
        ("0,3-4", "ranks 0,3-4: ranks 0, 3"),
        ("9", "rank 9: none is attached"),
    ],
)
def test_the_answer_to_a_choice_of_ranks(group: str, answer: str) -> None:
    """`@group` names the group, and the ranks in it if they differ from those that were chosen."""
    stage, _ = attached(0, 1, 3)
    number = stage.send("evaluate", expression=f"@group {group}", context="repl")
    assert answer == stage.response(number)["body"]["result"]


def test_single_thread_means_one_rank() -> None:
    """A request with `singleThread` moves the rank of its thread only."""
    stage, ranks = stopped(0, 1)
    stage.ask("next", threadId=stage.thread(1), singleThread=True)
    assert [0, 1] == [rank.names().count("next") for rank in ranks]


def test_a_chosen_rank_outside_of_the_group_stays_stopped() -> None:
    """The editor takes the thread of its request for running: it is shown as stopped again."""
    stage, _ = stopped(0, 1)
    stage.ask("evaluate", expression="@group 1", context="repl")
    chosen = stage.thread(0)
    stage.forget()
    stage.ask("next", threadId=chosen)
    assert chosen in [body["threadId"] for body in stage.events("stopped")]


def test_pause_stops_the_running_ranks_of_the_group() -> None:
    """`pause` is sent to the ranks that run."""
    stage, ranks = attached(0, 1)
    ranks[1].stop()
    stage.settle()
    stage.ask("pause", threadId=stage.thread(0))
    assert [1, 0] == [rank.names().count("pause") for rank in ranks]


def test_hold_stops_all_ranks() -> None:
    """The other ranks are paused, once; `continue` reaches one that has not stopped yet, so that it does not stop."""
    stage, ranks = attached(0, 1, 2)
    wanted = [{"line": 10, "condition": "RANK == 0", "logMessage": "@hold for {loss}"}]
    stage.ask("setBreakpoints", source={"path": FILE}, breakpoints=wanted)
    ranks[2].stops_at_pauses = False
    ranks[0].stop(hitBreakpointIds=[0])
    ranks[1].stop(hitBreakpointIds=[0])
    stage.settle()
    assert [0, 1, 1] == [rank.names().count("pause") for rank in ranks]
    stage.ask("continue", threadId=stage.thread(0))
    assert ["pause", "continue"] == [name for name in ranks[2].names() if name in {"pause", "continue"}]


def test_hold_stops_a_rank_that_comes_later() -> None:
    """A rank that attaches while another one is held is paused, too; once all have continued, none is."""
    stage, ranks = attached(0)
    stage.ask("setBreakpoints", source={"path": FILE}, breakpoints=[{"line": 10, "logMessage": "@hold"}])
    ranks[0].stop(hitBreakpointIds=[0])
    stage.settle()
    late = stage.join(1)
    stage.settle()
    assert "pause" in late.names()
    ranks[0].moves = late.moves = no_stop
    stage.ask("continue", threadId=stage.thread(0))
    later = stage.join(2)
    stage.settle()
    assert "pause" not in later.names()


def test_another_log_point_stops_no_other_rank() -> None:
    """A stop at a breakpoint whose message does not begin with `@hold` is that of one rank."""
    stage, ranks = attached(0, 1)
    stage.ask("setBreakpoints", source={"path": FILE}, breakpoints=[{"line": 10, "logMessage": "x @hold"}])
    ranks[0].stop(hitBreakpointIds=[0])
    stage.settle()
    assert "pause" not in ranks[1].names()


def test_values_of_a_snapshot_stay_valid() -> None:
    """Its references are those of the rank, also when this has stopped and continued; the oldest are forgotten."""
    stage, ranks = attached(0, 1)
    for number in range(1001):
        ranks[1].output("snapshot\n", variablesReference=FIRST_SNAPSHOT + number)
    stage.settle()
    first, *_, last = [body["variablesReference"] for body in stage.events("output")]
    ranks[1].stop()
    stage.settle()
    stage.ask("continue", threadId=stage.thread(1))
    assert "of 1" == stage.ask("variables", variablesReference=last)["variables"][0]["value"]
    assert {"variables": []} == stage.ask("variables", variablesReference=first)


def test_values_are_those_of_the_rank_of_the_frame() -> None:
    """Stack, scopes, variables, evaluation and exception come from the rank whose id is given."""
    stage, _ = stopped(0, 1)
    for rank in (0, 1):
        thread = stage.thread(rank)
        frame = stage.ask("stackTrace", threadId=thread, startFrame=0, levels=20)["stackFrames"][0]
        assert f"train{rank}" == frame["name"]
        scope = stage.ask("scopes", frameId=frame["id"])["scopes"][0]
        assert f"Locals {rank}" == scope["name"]
        assert (
            f"of {rank}"
            == stage.ask("variables", variablesReference=scope["variablesReference"])["variables"][0]["value"]
        )
        assert f"of {rank}" == stage.ask("evaluate", expression="x", frameId=frame["id"], context="hover")["result"]
        assert f"Error{rank}" == stage.ask("exceptionInfo", threadId=thread)["exceptionId"]


def test_the_stack_of_a_stop_is_requested_once() -> None:
    """The editor's request for the stack has the response that the session has used for the place."""
    stage, ranks = stopped(0, 1)
    stage.ask("stackTrace", threadId=stage.thread(0), startFrame=0, levels=20)
    assert 1 == ranks[0].names().count("stackTrace")


def test_ids_of_a_rank_that_has_continued_are_refused() -> None:
    """A frame of an earlier stop is not taken for one of the next stop; a view is empty, and a user's request fails."""
    stage, _ = stopped(0, 1)
    frame = stage.ask("stackTrace", threadId=stage.thread(1))["stackFrames"][0]["id"]
    stage.ask("next", threadId=stage.thread(0))
    assert {"scopes": []} == stage.ask("scopes", frameId=frame)
    assert "has since continued" in stage.refusal("evaluate", expression="loss", frameId=frame)


def test_a_rank_that_is_lost_leaves() -> None:
    """Its threads exit, its open request fails, its place in the group is free, and the others continue."""
    stage, ranks = stopped(0, 1)
    thread = stage.thread(1)
    number = stage.send("exceptionInfo", threadId=thread)
    stage.leave(ranks[1])
    assert not stage.response(number)["success"]
    assert {"reason": "exited", "threadId": thread} in stage.events("thread")
    stage.ask("next", threadId=stage.thread(0))
    assert 1 == ranks[0].names().count("next")


def test_a_restarted_rank_is_a_new_one() -> None:
    """It has other thread ids, and the breakpoints."""
    stage, ranks = stopped(0, 1)
    before = stage.thread(1)
    stage.leave(ranks[1])
    again = stage.join(1)
    stage.settle()
    assert before != stage.thread(1)
    assert again.names().index("setBreakpoints") < again.names().index("configurationDone")


def test_a_restarted_rank_at_the_same_place_is_summed_up_again() -> None:
    """The line about all ranks appears again when one of them has left and come back."""
    stage, ranks = stopped(0, 1)
    stage.leave(ranks[1])
    again = stage.join(1)
    stage.settle()
    again.stop()
    stage.forget()
    stage.settle()
    stage.wait(3)
    assert ["ranks 0-1 at train.py:10"] == stage.lines()


def test_breakpoints_are_the_union_of_the_ranks() -> None:
    """A breakpoint is verified if any rank has it; the message has the number, and an event follows a change."""
    stage, ranks = attached(0, 1, 2)
    ranks[1].verified = False
    [found] = stage.ask("setBreakpoints", source={"path": FILE}, breakpoints=[{"line": 10}])["breakpoints"]
    assert (True, "verified in 2 of 3 ranks") == (found["verified"], found["message"])
    ranks[1].breakpoint_changed(0, verified=True)
    stage.settle()
    [changed] = stage.events("breakpoint")
    assert (found["id"], True, False) == (
        changed["breakpoint"]["id"],
        changed["breakpoint"]["verified"],
        "message" in changed["breakpoint"],
    )


def test_a_silent_rank_does_not_hold_breakpoints_up() -> None:
    """After three seconds the editor is answered with what the other ranks have answered."""
    stage, ranks = attached(0, 1)
    number = stage.send("setBreakpoints", source={"path": FILE}, breakpoints=[{"line": 10}])
    ranks[0].answer()
    stage.deliver(1)
    assert [] == [each for each in stage.received if each["type"] == "response"]
    stage.now += 3
    stage.session.tick(stage.now)
    stage.flush()
    assert stage.response(number)["body"]["breakpoints"][0]["verified"]


def test_conditions_have_the_rank() -> None:
    """Each rank receives its own number in place of `RANK`."""
    stage, ranks = attached(0, 3)
    stage.ask("setBreakpoints", source={"path": FILE}, breakpoints=[{"line": 10, "condition": "RANK == 3"}])
    conditions = [rank.log[-1]["arguments"]["breakpoints"][0]["condition"] for rank in ranks]
    assert ["0 == 3", "3 == 3"] == conditions


def test_a_stop_names_the_breakpoints_of_the_session() -> None:
    """`hitBreakpointIds` has the ids that the editor has received."""
    stage, ranks = attached(0, 1)
    [found] = stage.ask("setBreakpoints", source={"path": FILE}, breakpoints=[{"line": 10}])["breakpoints"]
    ranks[1].stop(hitBreakpointIds=[0])
    stage.settle()
    assert [found["id"]] == stage.events("stopped")[0]["hitBreakpointIds"]


@pytest.mark.parametrize(
    ("command", "arguments", "allow", "expected"),
    [
        ("disconnect", {}, False, False),
        ("disconnect", {"terminateDebuggee": True}, False, False),
        ("terminate", {}, False, False),
        ("terminate", {}, True, True),
    ],
)
def test_the_end_detaches(command: str, arguments: dict[str, Any], allow: bool, expected: bool) -> None:
    """The editor's end disconnects every rank, which ends only if the user allows it."""
    stage, ranks = stopped(0, 1, allow_terminate=allow)
    stage.ask(command, **arguments)
    assert [expected] * 2 == [rank.log[-1]["arguments"]["terminateDebuggee"] for rank in ranks]


def test_the_session_ends_with_the_exit_code_of_the_job() -> None:
    """The first status that is not 0 is that of the job."""
    stage, ranks = attached(0, 1, 2)
    for rank, status in zip(ranks, (0, 7, 9), strict=True):
        rank._event("exited", exitCode=status)
        rank._event("terminated")
    stage.settle()
    assert stage.session.has_failed
    stage.session.conclude("all ranks have ended")
    stage.flush()
    assert [{"exitCode": 7}] == stage.events("exited")
    assert 1 == len(stage.events("terminated"))


def test_exit_codes_that_only_the_agents_know() -> None:
    """If the debugger of a rank ends without reporting the exit code, the announced one counts."""
    stage, (first, second) = attached(0, 1)
    second._event("exited", exitCode=0)
    stage.settle()
    assert [False, True] == [stage.session.has_exit_code(number) for number in stage.ranks]
    stage.leave(second)
    stage.leave(first, 7)
    stage.session.conclude("all ranks have ended")
    stage.flush()
    assert [{"exitCode": 7}] == stage.events("exited")


def test_a_rank_that_cannot_be_debugged_is_left_out() -> None:
    """The reason of its debugger is shown, and the session continues."""
    stage = Stage()
    stage.ask("initialize")
    stage.send("attach")
    refused = stage.join(0)
    request = refused.received.popleft()
    failure = {"type": "response", "request_seq": request["seq"], "success": False, "command": "initialize"}
    refused.sent.append({"seq": 1, **failure, "message": "cannot debug rank 0: held by bob@laptop"})
    stage.settle()
    assert ["cannot debug rank 0: held by bob@laptop"] == stage.lines()
    assert {} == stage.ranks


def nested(depth: int) -> list[Any]:
    found: list[Any] = []
    for _ in range(depth):
        found = [found]
    return found


@pytest.mark.parametrize(
    "message",
    [
        {"event": "stopped", "body": "text"},
        {"event": "stopped", "body": {"hitBreakpointIds": [[1]]}},
        {"event": "thread", "body": [1]},
        {"event": "exited", "body": {"exitCode": [1]}},
        {"event": "exited", "body": {"exitCode": float("inf")}},
        {"event": "output", "body": {"output": "x", "group": nested(2000)}},
    ],
    ids=["body", "breakpoint", "thread", "exit code", "endless exit code", "nested output"],
)
def test_a_rank_that_sends_an_invalid_message_is_left_out(message: dict[str, Any]) -> None:
    """A field of the wrong type ends the connection to that rank, with the place; the other is still debugged."""
    stage, (hostile, other) = attached(0, 1)
    hostile.sent.append({"seq": 1000, "type": "event", **message})
    stage.settle()
    assert [other] == list(stage.ranks.values())
    (line,) = (line for line in stage.lines() if line.startswith("rank 0 is left out: a message from its debugger"))
    assert re.search(r"\((Attribute|Overflow|Recursion|Type|Value)Error at \w+\.py:\d+\)$", line)
    other.stop()
    stage.settle()
    assert "breakpoint" == stage.events("stopped")[0]["reason"]


def test_a_rank_with_a_stack_that_cannot_be_read_is_left_out() -> None:
    """A deeply nested call stack ends the connection to that rank before the editor asks for it."""
    stage, (hostile, other) = attached(0, 1)
    hostile.stop()
    hostile._body = lambda _command, _arguments: {"stackFrames": nested(2000)}  # type: ignore[method-assign]
    stage.settle()
    assert [other] == list(stage.ranks.values())
    other.stop()
    stage.settle()
    assert stage.ask("stackTrace", threadId=stage.thread(1), startFrame=0, levels=20)["stackFrames"]


def test_a_place_that_is_found_late_is_shown() -> None:
    """If a stack arrives after the summary was due, the summary is shown again with the place, once."""
    stage, _ = attached(0, 1)
    for number, rank in stage.ranks.items():
        rank.stop()
        stage.deliver(number)
    stage.session.tick(stage.now + 1)
    stage.flush()
    assert ["ranks 0-1 at an unknown place"] == stage.lines()
    stage.settle()
    stage.wait(3)
    assert ["ranks 0-1 at an unknown place", "ranks 0-1 at train.py:10"] == stage.lines()


def test_formats_in_logpoints() -> None:
    """Each rank receives a log message that its debugger can evaluate, with its own number in place of `RANK`."""
    stage, (rank,) = attached(3)
    stage.ask("setBreakpoints", source={"path": FILE}, breakpoints=[{"line": 10, "logMessage": "{RANK:02d} {x!r}"}])
    sent = [each for each in rank.log if each["command"] == "setBreakpoints"][-1]["arguments"]
    assert "{format(3, '02d')} {format(repr(x), '')}" == sent["breakpoints"][0]["logMessage"]


def test_commands_about_all_ranks() -> None:
    """The owner of the session answers what is not about its group or its list, and also unknown commands."""
    stage, _ = attached(0)
    for text in ("@all x", "@diff x", "@hang", "@help", "@nonsense"):
        number = stage.send("evaluate", expression=text, context="repl")
        request, command = stage.questions.pop()
        assert (number, text) == (request["seq"], f"@{command.name} {command.expression}".rstrip())
    stage.session.wire.answer_text(request, "use @ranks")
    stage.flush()
    assert {"result": "use @ranks", "variablesReference": 0} == stage.response(number)["body"]
