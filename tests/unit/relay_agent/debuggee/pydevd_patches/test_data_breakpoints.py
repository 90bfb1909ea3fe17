"""Facts about data breakpoints: an editor is stopped where a value has changed, and learns which and from what."""

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from relay_client.dap import DapClient
from relay_core.errors import ConnectionLost, RelayDebugError
from tests.support.debuggers.armed import REARMED, adapter, armed, debugged_script
from tests.support.editors.stopped import Stopped
from tests.support.jobs.processes import job
from tests.support.machine.deadline import DEADLINE

PROGRAM = """\
class Slotted:
    __slots__ = ("rate",)

class Schedule:
    total = 0
    def __init__(self):
        self.rate = 1
        self.list = [1, 2]
        self.dict = {"rate": 1}
        self.slotted = Slotted()
        self.slotted.rate = 1
    @property
    def computed(self):
        return self.rate

COUNT = 1
schedule = Schedule()

def calm():
    schedule.rate = schedule.rate + 0
    schedule.other = 1

def change():
    CHANGE

def main():
    while True:
        calm()
        change()

def stop():
    return schedule

stop()
main()
"""
STOP = PROGRAM.splitlines().index("    return schedule") + 1
CHANGED = PROGRAM.splitlines().index("    CHANGE") + 1
needs_monitoring = pytest.mark.skipif(sys.version_info < (3, 12), reason="it changes in calls that are running")


async def variables(client: DapClient, reference: int) -> dict[str, Any]:
    """Return the variables of a scope or value, by name."""
    body = await client.request("variables", {"variablesReference": reference}, within=DEADLINE)
    return {each["name"]: each for each in body["variables"]}


async def watch(editor: Stopped, *path: str, **options: Any) -> dict[str, Any]:
    """Break on changes of a value, below the globals; return the breakpoint's state."""
    frame = await editor.frame()
    scopes = (await editor.client.request("scopes", {"frameId": frame["id"]}, within=DEADLINE))["scopes"]
    reference = next(each["variablesReference"] for each in scopes if each["name"] == options.pop("scope", "Globals"))
    for name in path[:-1]:
        reference = (await variables(editor.client, reference))[name]["variablesReference"]
    arguments = {"variablesReference": reference, "name": path[-1]}
    info = await editor.client.request("dataBreakpointInfo", arguments, within=DEADLINE)
    if info["dataId"] is None:
        return {"verified": False, "message": info["description"]}
    chosen = {"dataId": info["dataId"], "accessType": "write", **options}
    body = await editor.client.request("setDataBreakpoints", {"breakpoints": [chosen]}, within=DEADLINE)
    return body["breakpoints"][0]  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("change", "path", "expected"),
    [
        ("schedule.rate = 2", ("rate",), "schedule.rate changed 1 -> 2"),
        ("schedule.rate += 1", ("rate",), "schedule.rate changed 1 -> 2"),
        ("schedule.rate, _ = 2, 3", ("rate",), "schedule.rate changed 1 -> 2"),
        ("for schedule.rate in [2]: pass", ("rate",), "schedule.rate changed 1 -> 2"),
        (
            "import contextlib\n    with contextlib.nullcontext(2) as schedule.rate: pass",
            ("rate",),
            "schedule.rate changed 1 -> 2",
        ),
        ("del schedule.rate; schedule.rate = 1 if 0 else float('nan')", ("rate",), "schedule.rate changed 1 -> nan"),
        ("del schedule.rate\n    raise SystemExit(3)", ("rate",), "schedule.rate was deleted"),
        ("schedule.list[1] = 3", ("list", "1"), "schedule.list[1] changed 2 -> 3"),
        ("schedule.dict['rate'] = 2", ("dict", "'rate'"), "schedule.dict['rate'] changed 1 -> 2"),
        ("schedule.slotted.rate = 2", ("slotted", "rate"), "schedule.slotted.rate changed 1 -> 2"),
        ("Schedule.total = 2", ("class variables", "Schedule", "total"), "Schedule.total changed 0 -> 2"),
        ("global COUNT; COUNT = 2", ("COUNT",), "COUNT changed 1 -> 2"),
        ("global COUNT; globals().update(COUNT=2); COUNT += 0", ("COUNT",), "COUNT changed 1 -> 2"),
    ],
)
async def test_store(tmp_path: Path, change: str, path: tuple[str, ...], expected: str) -> None:
    """The thread stops behind the store, also if it is the last of its function; the reason names value and line."""
    program = PROGRAM.replace("CHANGE", change)
    async with debugged_script(tmp_path, program, STOP) as (_running, client):
        editor = Stopped(client)
        await editor.until_stopped()
        where = ("schedule", *path) if expected.startswith("schedule.") else path
        assert (await watch(editor, *where))["verified"]
        body = await editor.move("continue")
        line = CHANGED + change.count("\n") * ("with" in change)
        assert ("data breakpoint", f"{expected} by change program.py:{line}") == (body["reason"], body["text"])
        assert "change" == await editor.function()


async def stopped_again(tmp_path: Path, change: str, *path: str, **options: Any) -> tuple[dict[str, Any], str]:
    """Break on changes of a value below `schedule`; return the breakpoint's state, and why the thread stops, or ""."""
    async with debugged_script(tmp_path, PROGRAM.replace("CHANGE", change), STOP) as (_running, client):
        editor = Stopped(client)
        await editor.until_stopped()
        state = await watch(editor, *path, **options)
        return state, (await editor.move("continue"))["text"] if state["verified"] else ""


@needs_monitoring
@pytest.mark.parametrize(
    ("change", "path", "expected"),
    [
        ("setattr(schedule, 'rate', 2)", ("rate",), "schedule.rate changed 1 -> 2 during change program.py:{}"),
        (
            "vars(schedule).update(rate=2)\n    pass",
            ("rate",),
            "schedule.rate changed 1 -> 2 during change program.py:{}",
        ),
        (
            "schedule.list.insert(0, 0); schedule.list[0] += 0",
            ("list", "1"),
            "schedule.list[1] changed 2 -> 1 by change program.py:{}",
        ),
    ],
)
async def test_change_that_no_instruction_shows(
    tmp_path: Path, change: str, path: tuple[str, ...], expected: str
) -> None:
    """It is found at the next line of a function in which the value is compared."""
    change = f"{change}\n    schedule.other = schedule.rate; schedule.rate = schedule.other; schedule.list[0] = 0"
    assert expected.format(CHANGED) == (await stopped_again(tmp_path, change, "schedule", *path))[1]


async def test_condition(tmp_path: Path) -> None:
    """While it is false, no change stops the thread; one that raises does, which is shown."""
    change = "schedule.rate += 1"
    state, text = await stopped_again(tmp_path, change, "schedule", "rate", condition="schedule.rate == 5")
    assert (True, f"schedule.rate changed 4 -> 5 by change program.py:{CHANGED}") == (state["verified"], text)
    _, text = await stopped_again(tmp_path, change, "schedule", "rate", condition="missing")
    assert text.endswith(" (its condition raised NameError: name 'missing' is not defined)")


async def test_control_characters(tmp_path: Path) -> None:
    """The reason has escape sequences in place of the control characters in values and exceptions of the job."""
    change = r"schedule.rate = type('Rate', (), {'__repr__': lambda self: '\x1b]0;a\x07'})()"
    _, text = await stopped_again(tmp_path, change, "schedule", "rate", condition=r"1 / {}['\x1b[31m']")
    assert rf"schedule.rate changed 1 -> \x1b]0;a\x07 by change program.py:{CHANGED}" in text
    assert text.isprintable()


@pytest.mark.parametrize(
    ("path", "options", "expected"),
    [
        (("schedule", "rate"), {"condition": "1 +"}, "invalid expression '1 +': SyntaxError: "),
        (("schedule", "rate"), {"hitCondition": "3"}, "a data breakpoint has no hit count"),
        (("schedule", "missing"), {}, "missing cannot be watched: LookupError: Schedule has no attribute 'missing'"),
        (
            ("schedule", "computed"),
            {},
            "computed cannot be watched: TypeError: reading 'computed' of Schedule would execute",
        ),
        (
            ("schedule", "dict", "'missing'"),
            {},
            "'missing' cannot be watched: LookupError: no key 'missing' of type str or int",
        ),
    ],
)
async def test_refusal(tmp_path: Path, path: tuple[str, ...], options: dict[str, Any], expected: str) -> None:
    """The editor receives the reason."""
    state, _ = await stopped_again(tmp_path, "schedule.rate = 2", *path, **options)
    assert not state["verified"]
    assert state["message"].startswith(expected)


async def test_value_of_another_process(tmp_path: Path) -> None:
    """Its id is unknown; the request replaces all data breakpoints."""
    async with debugged_script(tmp_path, PROGRAM.replace("CHANGE", "schedule.rate += 1"), STOP) as (_running, client):
        editor = Stopped(client)
        await editor.until_stopped()
        assert (await watch(editor, "schedule", "rate"))["verified"]
        body = await client.request("setDataBreakpoints", {"breakpoints": [{"dataId": "other"}]}, within=DEADLINE)
        message = "this value belongs to another process, or to a stop or debug session that is over"
        assert [{"verified": False, "message": message, "reason": "pending"}] == body["breakpoints"]
        await client.set_breakpoints(str(tmp_path / "program.py"), [{"line": CHANGED}], within=DEADLINE)
        assert "breakpoint" == (await editor.move("continue"))["reason"]


@pytest.mark.parametrize("step", ["next", "stepIn", "stepOut"])
async def test_step_from_a_return(tmp_path: Path, step: str) -> None:
    """It leads to the caller."""
    async with debugged_script(tmp_path, PROGRAM.replace("CHANGE", "schedule.rate += 1"), STOP) as (_running, client):
        editor = Stopped(client)
        await editor.until_stopped()
        await watch(editor, "schedule", "rate")
        await editor.move("continue")
        assert "step" == (await editor.move(step))["reason"]
        assert "main" == await editor.function()


@needs_monitoring
async def test_step_over_a_store(tmp_path: Path) -> None:
    """It ends at the next line with the reason of the data breakpoint, and the next step leads on from there."""
    program = PROGRAM.replace("CHANGE", "schedule.rate += 1\n    other = 1\n    return other")
    async with debugged_script(tmp_path, program, STOP + 2, CHANGED) as (_running, client):
        editor = Stopped(client)
        await editor.until_stopped()
        assert (await watch(editor, "schedule", "rate"))["verified"]
        await editor.move("continue")
        assert "data breakpoint" == (await editor.move("next"))["reason"]
        assert CHANGED + 1 == (await editor.frame())["line"]
        assert "step" == (await editor.move("next"))["reason"]
        assert CHANGED + 2 == (await editor.frame())["line"]


async def test_switched_off_and_on(tmp_path: Path) -> None:
    """An editor may leave a data breakpoint out, and set it again; what the user has changed does not count."""
    async with debugged_script(tmp_path, PROGRAM.replace("CHANGE", "schedule.rate += 1"), STOP) as (_running, client):
        editor = Stopped(client)
        await editor.until_stopped()
        frame = await editor.frame()
        scopes = (await client.request("scopes", {"frameId": frame["id"]}, within=DEADLINE))["scopes"]
        reference = (await variables(client, scopes[-1]["variablesReference"]))["schedule"]["variablesReference"]
        arguments = {"variablesReference": reference, "name": "rate"}
        info = await client.request("dataBreakpointInfo", arguments, within=DEADLINE)
        chosen = {"dataId": info["dataId"], "accessType": "write"}
        for wanted in ([chosen], [], [chosen]):
            body = await client.request("setDataBreakpoints", {"breakpoints": wanted}, within=DEADLINE)
        assert body["breakpoints"][0]["verified"]
        await editor.evaluate("schedule.rate = 7", "repl")
        text = f"schedule.rate changed 7 -> 8 by change program.py:{CHANGED}"
        assert text == (await editor.move("continue"))["text"]


async def test_value_that_is_set_later(tmp_path: Path) -> None:
    """An editor may read other values in between."""
    async with debugged_script(tmp_path, PROGRAM.replace("CHANGE", "schedule.rate += 1"), STOP) as (_running, client):
        editor = Stopped(client)
        await editor.until_stopped()
        frame = await editor.frame()
        scopes = (await client.request("scopes", {"frameId": frame["id"]}, within=DEADLINE))["scopes"]
        found = await variables(client, scopes[-1]["variablesReference"])
        arguments = {"variablesReference": found["schedule"]["variablesReference"], "name": "rate"}
        info = await client.request("dataBreakpointInfo", arguments, within=DEADLINE)
        for _ in range(2):
            found = await variables(client, scopes[-1]["variablesReference"])
            await variables(client, found["schedule"]["variablesReference"])
        chosen = {"dataId": info["dataId"], "accessType": "write"}
        body = await client.request("setDataBreakpoints", {"breakpoints": [chosen]}, within=DEADLINE)
        assert body["breakpoints"][0]["verified"]


@pytest.mark.parametrize(
    "wanted", [None, "abc", [None], [5], [{}], [{"dataId": ["x"]}], [{"dataId": "x", "condition": 5}]]
)
async def test_malformed_request(tmp_path: Path, wanted: object) -> None:
    """It is refused, and the session continues as before."""
    async with debugged_script(tmp_path, PROGRAM.replace("CHANGE", "schedule.rate += 1"), STOP) as (_running, client):
        editor = Stopped(client)
        await editor.until_stopped()
        try:
            body = await client.request("setDataBreakpoints", {"breakpoints": wanted}, within=DEADLINE)
            assert not any(each["verified"] for each in body["breakpoints"])
        except RelayDebugError:
            pass
        assert "stop" == await editor.function()


async def test_end_of_the_session(tmp_path: Path) -> None:
    """The job runs on, without hooks."""
    program = PROGRAM.replace(
        "CHANGE", "schedule.rate += 1; print(calm.__code__.co_code == original, TOOL, flush=True)"
    )
    program = program.replace("def main", "original = calm.__code__.co_code\n\ndef main").replace(
        "TOOL", "__import__('sys').monitoring.get_tool(3)" if sys.version_info >= (3, 12) else "None"
    )
    async with debugged_script(tmp_path, program, STOP) as (running, client):
        editor = Stopped(client)
        await editor.until_stopped()
        assert (await watch(editor, "schedule", "rate"))["verified"]
        assert (await editor.move("continue"))["text"].startswith("schedule.rate changed 1 -> 2")
        await client.request("disconnect", {"terminateDebuggee": False}, within=DEADLINE)
        lines = [await running.line(), await running.line()]
        assert "True None" == lines[-1]


async def test_adapter_that_was_killed(tmp_path: Path) -> None:
    """The hooks stop no thread any more, and remain until the agent makes the process run at full speed again."""
    script, pipe = tmp_path / "program.py", tmp_path / "pipe"
    os.mkfifo(pipe)
    hooked = "sys.monitoring.get_tool(3) is not None" if sys.version_info >= (3, 12) else "change.__code__ != original"
    wait = "with open(sys.argv[2]) as pipe: pipe.read()"
    program = PROGRAM.replace("CHANGE", f"schedule.rate += 1\n    {wait}\n    print({hooked}, flush=True)")
    script.write_text(program.replace("\nstop()", f"\nimport sys\noriginal = change.__code__\n{wait}\nstop()"))
    async with job(armed(REARMED), str(script), str(pipe)) as running:
        port = int(await running.line())
        async with await DapClient.connect("127.0.0.1", port, within=DEADLINE) as client:
            await client.attach({str(script): [{"line": STOP}]}, within=DEADLINE)
            await asyncio.to_thread(pipe.write_text, "")
            editor = Stopped(client)
            await editor.until_stopped()
            assert (await watch(editor, "schedule", "rate"))["verified"]
            assert (await editor.move("continue"))["text"].startswith("schedule.rate changed 1 -> 2")
            await client.request("continue", {"threadId": editor.thread}, within=DEADLINE)
            psutil.Process(adapter(port)).kill()
            with pytest.raises(ConnectionLost):
                await client.wait_for_event("never", within=DEADLINE)
        for _ in range(2):
            await asyncio.to_thread(pipe.write_text, "")
            assert "True" == await running.line()
        running.process.stdin.write(b"\n")
        await running.line()
        await asyncio.to_thread(pipe.write_text, "")
        assert "False" == await running.line()


@needs_monitoring
async def test_local_variable(tmp_path: Path) -> None:
    """It is watched until its call ends."""
    loop = "    loss = 1\n    for step in range(2):\n        loss += step\n    return loss\n"
    program = f"def train():\n{loop}train()\ntrain()\n"
    async with debugged_script(tmp_path, program, 3) as (running, client):
        editor = Stopped(client)
        await editor.until_stopped()
        assert (await watch(editor, "loss", scope="Locals"))["verified"]
        await client.set_breakpoints(str(tmp_path / "program.py"), [], within=DEADLINE)
        assert "loss changed 1 -> 2 by train program.py:4" == (await editor.move("continue"))["text"]
        await client.request("continue", {"threadId": editor.thread}, within=DEADLINE)
        assert 0 == (await running.finish())[0]


async def test_tensor(tmp_path: Path) -> None:
    """A change in place is noticed."""
    pytest.importorskip("torch")
    program = PROGRAM.replace("self.rate = 1", "import torch; self.rate = torch.zeros(2)").replace("rate + 0", "rate")
    program = program.replace("CHANGE", "schedule.rate += 1")
    async with debugged_script(tmp_path, program, STOP) as (_running, client):
        editor = Stopped(client)
        await editor.until_stopped()
        assert (await watch(editor, "schedule", "rate"))["verified"]
        text = f"schedule.rate was changed in place by change program.py:{CHANGED}"
        assert text == (await editor.move("continue"))["text"]
