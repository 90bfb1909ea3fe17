"""Facts about the grammar of breakpoints, and how they are numbered and kept."""

import pytest

from relay_client.pdb.breakpoints import Breakpoint, Breakpoints, BreakpointSpec, NotSet, parse_initial, parse_spec
from relay_core.errors import UsageError


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("12", BreakpointSpec("", 12, "", "")),
        (" 12 , epoch == 3", BreakpointSpec("", 12, "", "epoch == 3")),
        ("train.py:12", BreakpointSpec("train.py", 12, "", "")),
        ("/a b/train.py : 12, x, y", BreakpointSpec("/a b/train.py", 12, "", "x, y")),
        ("<stdin>:3", BreakpointSpec("<stdin>", 3, "", "")),
        ("train_step", BreakpointSpec("", 0, "train_step", "")),
        ("Model.forward, i > 2", BreakpointSpec("", 0, "Model.forward", "i > 2")),
    ],
)
def test_grammar(text, spec):
    """A line, a file with a line, or a function; and a condition behind a comma."""
    assert parse_spec(text) == spec


@pytest.mark.parametrize(("text", "hint"), [("15", "-b train.py:15"), ("train_step", "-b train.py:12")])
def test_a_breakpoint_of_the_command_line(text, hint):
    """It needs a file and a line; the hint shows the form."""
    assert parse_initial("train.py:15, x") == parse_spec("train.py:15, x")
    with pytest.raises(UsageError) as error:
        parse_initial(text)
    assert (f"invalid breakpoint: '{text}'", f"write it as {hint}") == (error.value.sentence, error.value.hint)


@pytest.mark.parametrize(
    ("condition", "warning"),
    [
        ("", ""),
        ("x > 1", ""),
        ("step >", "the condition may be invalid: invalid syntax"),
        ("x = 1", "the condition may be invalid: invalid syntax"),
    ],
)
def test_the_syntax_of_a_condition(condition, warning):
    """A condition that Python cannot parse here has a warning."""
    assert warning == Breakpoint(1, "/a.py", 3, condition).warning


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (Breakpoint(1, "/a.py", 3), "Breakpoint 1 at /a.py:3"),
        (Breakpoint(2, "/a.py", 3, "x > 1", temporary=True), "Temporary breakpoint 2 at /a.py:3 if x > 1"),
        (Breakpoint(3, "/a.py", 3, typed_line=9), "Breakpoint 3 at /a.py:3 (line 9 has no code)"),
    ],
)
def test_breakpoint_as_text(found, text):
    """Its text has location and condition, and the line that was typed."""
    assert str(found) == text


class Adapter:
    """A debug adapter that takes breakpoints in even lines, one line further on."""

    end_reason = ""

    def __init__(self):
        self.set = {}
        self.resumed = []

    async def request(self, command, *, source, breakpoints):
        assert command == "setBreakpoints"
        self.set[source["path"]] = [one["line"] for one in breakpoints]
        return {
            "breakpoints": [
                {"id": 100 + one["line"], "line": one["line"] + 1, "verified": True}
                if one["line"] % 2 == 0
                else {"verified": False, "message": "odd"}
                for one in breakpoints
            ]
        }

    async def resume(self, command):
        self.resumed.append((command, dict(self.set)))


async def test_numbers_and_places():
    """Breakpoints take the adapter's lines; one that is refused has no number, and does not stay in the adapter."""
    adapter = Adapter()
    table = Breakpoints(adapter)
    first = await table.set("/a.py", 4)
    assert (first.number, first.line, first.typed_line, first.id, first.problem) == (1, 5, 4, 104, "")
    with pytest.raises(NotSet, match="^no breakpoint set at /b.py:7: odd$"):
        await table.set("/b.py", 7)
    assert (table.all, adapter.set["/b.py"]) == ([first], [])
    first.line = 4
    second = await table.set("/a.py", 8, "x")
    assert (second.number, adapter.set["/a.py"]) == (2, [4, 8])
    assert await table.clear({1, 9}) == [first]
    assert adapter.set["/a.py"] == [9]
    assert table.by_path() == {"/a.py": [second]}


async def test_temporary_ones_go_when_they_are_hit():
    """A temporary breakpoint is removed when it is hit, others stay."""
    table = Breakpoints(Adapter())
    temporary, lasting = await table.set("/a.py", 4, temporary=True), await table.set("/b.py", 6)
    await table.clear_hit([999], [])
    assert len(table.all) == 2
    await table.clear_hit([temporary.id, lasting.id], [])
    assert table.all == [lasting]


async def test_run_until():
    """Lines to run to are set for one run, beside the breakpoints that are there."""
    adapter = Adapter()
    table = Breakpoints(adapter)
    table.add("/a.py", 4)
    await table.run_until("/a.py", range(7, 10))
    assert adapter.resumed == [("stepOut", {"/a.py": [4, 7, 8, 9]})]
    assert adapter.set == {"/a.py": [5]}  # where the adapter has moved it


async def test_temporary_ones_go_when_their_line_is_reached():
    """A temporary breakpoint at the line of a stop is removed, in that file only, even if it was not the reason."""
    table = Breakpoints(Adapter())
    temporary, lasting = await table.set("/a.py", 2, temporary=True), await table.set("/b.py", 4)
    await table.clear_hit([], [("/b.py", temporary.line)])
    assert table.all == [temporary, lasting]
    await table.clear_hit([], [("/a.py", temporary.line), ("/b.py", lasting.line)])
    assert table.all == [lasting]
