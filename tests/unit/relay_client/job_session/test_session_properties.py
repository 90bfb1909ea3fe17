"""What holds for a session of all ranks whatever happens in which order."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from tests.support.sessions.scripted_ranks import FILE, ScriptedRank, Stage

MOVES = ("continue", "next", "stepIn", "stepOut", "pause")


class Sessions(RuleBasedStateMachine):
    """Ranks come, stop, answer late and die; an editor uses every id that it has ever received."""

    def __init__(self) -> None:
        super().__init__()
        self.stage = Stage()
        self.stage.send("initialize")
        self.stage.send("attach")
        self.owners: dict[tuple[str, int], int] = {}
        """The rank of each id, by kind."""
        self.seen = 0

    @rule(rank=st.integers(0, 3))
    def join(self, rank: int) -> None:
        if rank not in {found.rank for found in self.stage.ranks.values()}:
            self.stage.join(rank)

    @precondition(lambda self: self.stage.ranks)
    @rule(data=st.data())
    def die(self, data: st.DataObject) -> None:
        self.stage.leave(data.draw(st.sampled_from(list(self.stage.ranks.values()))))

    @precondition(lambda self: self.stage.ranks)
    @rule(data=st.data(), times=st.integers(1, 5))
    def answer(self, data: st.DataObject, times: int) -> None:
        rank = data.draw(st.sampled_from(list(self.stage.ranks.values())))
        for _ in range(min(times, len(rank.received))):
            rank.answer()

    @precondition(lambda self: self.stage.ranks)
    @rule(data=st.data(), times=st.integers(1, 5))
    def deliver(self, data: st.DataObject, times: int) -> None:
        number = data.draw(st.sampled_from(list(self.stage.ranks)))
        for _ in range(min(times, len(self.stage.ranks[number].sent))):
            self.stage.deliver(number)
        self.look()

    @precondition(lambda self: self.stage.ranks)
    @rule(data=st.data())
    def stop(self, data: st.DataObject) -> None:
        rank = data.draw(st.sampled_from(list(self.stage.ranks.values())))
        if not rank.is_stopped:
            rank.stop()

    @rule(lines=st.lists(st.integers(1, 50), max_size=3))
    def set_breakpoints(self, lines: list[int]) -> None:
        self.stage.send("setBreakpoints", source={"path": FILE}, breakpoints=[{"line": line} for line in lines])

    @rule()
    def configure(self) -> None:
        self.stage.send("configurationDone")

    @rule()
    def threads(self) -> None:
        self.stage.send("threads")
        self.look()

    @precondition(lambda self: self.owners)
    @rule(data=st.data(), command=st.sampled_from((*MOVES, "stackTrace", "scopes", "variables", "evaluate")))
    def use(self, data: st.DataObject, command: str) -> None:
        kind = {"scopes": "frameId", "evaluate": "frameId", "variables": "variablesReference"}.get(command, "threadId")
        ids = sorted(number for name, number in self.owners if name == kind)
        if ids:
            self.stage.send(command, **{kind: data.draw(st.sampled_from(ids))}, startFrame=0, levels=20)

    @rule(seconds=st.sampled_from((0.05, 1.0, 5.0)))
    def pass_time(self, seconds: float) -> None:
        self.stage.now += seconds
        self.stage.session.tick(self.stage.now)
        self.stage.flush()

    def look(self) -> None:
        """Check what the editor has received: the answer to a request about one rank is that rank's."""
        requests = {request["seq"]: request for request in self.stage.asked}
        for message in self.stage.received[self.seen :]:
            if message["type"] == "response" and message["success"]:
                self.check(requests[message["request_seq"]], message.get("body") or {})
        self.seen = len(self.stage.received)

    def check(self, request: dict[str, Any], body: dict[str, Any]) -> None:
        match request["command"], body:
            case "threads", {"threads": threads}:
                for each in threads:
                    self.note("threadId", each["id"], int(each["name"].split()[1]))
            case "stackTrace", {"stackFrames": [{"id": number, "name": name}]}:
                assert name == f"train{self.owner(request, 'threadId')}"
                self.note("frameId", number, self.owner(request, "threadId"))
            case "scopes", {"scopes": [{"name": name, "variablesReference": number}]}:
                assert name == f"Locals {self.owner(request, 'frameId')}"
                self.note("variablesReference", number, self.owner(request, "frameId"))
            case "variables", {"variables": [{"value": value, "variablesReference": number}]}:
                assert value == f"of {self.owner(request, 'variablesReference')}"
                self.note("variablesReference", number, self.owner(request, "variablesReference"))
            case "evaluate", {"result": value}:
                assert value == f"of {self.owner(request, 'frameId')}"

    def owner(self, request: dict[str, Any], kind: str) -> int:
        return self.owners[kind, request["arguments"][kind]]

    def note(self, kind: str, number: int, rank: int) -> None:
        assert self.owners.setdefault((kind, number), rank) == rank, "one id for two ranks"

    def teardown(self) -> None:
        """Every request has exactly one response once all ranks have answered, or are gone."""
        self.stage.settle()
        self.stage.wait(10)
        for rank in list[ScriptedRank](self.stage.ranks.values()):
            self.stage.leave(rank)
        self.stage.send("configurationDone")
        self.look()
        answered = sorted(each["request_seq"] for each in self.stage.received if each["type"] == "response")
        assert [request["seq"] for request in self.stage.asked] == answered


Sessions.TestCase.settings = settings(max_examples=60, stateful_step_count=40, suppress_health_check=list(HealthCheck))
TestSessions = Sessions.TestCase
