"""Facts about the terminal debugger: a real debugpy, on a real terminal or with commands from a pipe."""

import asyncio
import os

import pytest

from tests.support.debuggers.debuggee import LINE, debuggee
from tests.support.debuggers.pdb_jobs import LOOP, PDB, PROMPT, looping, pdb, scripted
from tests.support.machine.deadline import DEADLINE
from tests.support.machine.terminal import CTRL_C, CTRL_D, on_terminal


async def test_two_sessions_at_a_terminal(tmp_path):
    """A person attaches, looks, steps, lets it run, pauses with Ctrl-C and leaves; and then once more."""
    async with looping(tmp_path) as found:
        for _ in range(2):
            async with pdb(found.port) as terminal:
                shown = await terminal.expect(PROMPT)
                assert "attaching to rank 0" in shown
                assert "\n> /" in shown
                answer = await terminal.ask(f"b looping.py:{found.line('total = 0')}, number % 5 == 0", PROMPT)
                assert answer == f"Breakpoint 1 at {found.script}:{found.line('total = 0')} if number % 5 == 0\n"
                answer = await terminal.ask("c", PROMPT)
                assert answer == f"> {found.script}({found.line('total = 0')})work()\n-> total = 0\n"
                assert await terminal.ask("p number % 5, 'a'", PROMPT) == "(0, 'a')\n"
                answer = await terminal.ask("n", PROMPT)
                assert answer == f"> {found.script}({found.line('for part')})work()\n-> for part in range(3):\n"
                answer = await terminal.ask("w", PROMPT)
                assert answer.endswith(
                    f"  {found.script}({found.line('    work(number)')})run()\n-> work(number)\n"
                    f"> {found.script}({found.line('for part')})work()\n-> for part in range(3):\n"
                )
                await terminal.ask("cl", PROMPT)
                terminal.type("c\n")
                await found.runs_on()
                terminal.type(CTRL_C)
                assert "\n> /" in await terminal.expect(PROMPT)
                terminal.type("q\n")
                status, rest = await terminal.finish()
                assert (status, rest.splitlines()[-1]) == (0, "detached; rank 0 continues")
            await found.runs_on()


async def test_keys_at_the_prompt(tmp_path):
    """Ctrl-C drops the line that is being typed, an empty line repeats a move, the arrow key recalls; Ctrl-D leaves."""
    options = {"breakpoints": ["looping.py:9"], "cwd": str(tmp_path), "stop": False}  # from the job's start directory
    async with looping(tmp_path) as found, pdb(found.port, **options) as terminal:
        await terminal.expect(PROMPT)
        terminal.type("p 'not ")
        await terminal.expect("p 'not ")
        await terminal.interrupt(PROMPT)
        assert await terminal.ask("p 'sent'", PROMPT) == "'sent'\n"
        assert "(10)work()" in await terminal.ask("n", PROMPT)
        assert "(11)work()" in await terminal.ask("", PROMPT)
        await terminal.ask("number", PROMPT)
        assert await terminal.ask("", PROMPT) == ""
        terminal.type("\x1b[A\n")
        await terminal.expect(PROMPT)
        terminal.type(CTRL_D)
        status, rest = await terminal.finish()
        assert status == 0
        assert "detached; rank 0 continues" in rest
        await found.runs_on()


LOGS = """
import logging, threading
from relay_core.program.console import configure_logging

def log():
    with open(sys.argv[3]) as pipe:
        pipe.read()
    logging.getLogger("relay_client").warning("tunnel lost")

configure_logging("relay-client")
threading.Thread(target=log, daemon=True).start()
"""


async def test_log_line_at_the_prompt(tmp_path):
    """A line of the log appears above the prompt and what was typed there."""
    os.mkfifo(pipe := tmp_path / "pipe")
    async with looping(tmp_path) as found, on_terminal(LOGS + PDB, str(found.port), "{}", str(pipe)) as terminal:
        await terminal.expect(PROMPT)
        terminal.type("p 1")
        await terminal.expect("p 1")
        await asyncio.to_thread(pipe.write_text, "now")
        assert (await terminal.expect(f"{PROMPT}p 1")).startswith("\r\x1b[Krelay-client: warning: tunnel lost\n")
        terminal.type("\n")
        await terminal.expect(PROMPT)
        terminal.type("q\n")
        assert 0 == (await terminal.finish())[0]


@pytest.mark.parametrize("leave", ["q\n", CTRL_D])
async def test_lines_typed_while_the_job_runs(tmp_path, leave):
    """A line typed while the job runs is refused and not executed later; q and Ctrl-D detach without a stop."""
    async with looping(tmp_path) as found, pdb(found.port) as terminal:
        await terminal.expect(PROMPT)
        terminal.type("c\n")
        await found.runs_on()
        terminal.type("print('late')\n")
        shown = await terminal.expect("q or Ctrl-D detaches\n")
        assert shown.splitlines()[-1] == "not executed: the job is running; Ctrl-C pauses it, q or Ctrl-D detaches"
        assert "late" not in await terminal.interrupt(PROMPT)
        assert await terminal.ask("p 'prompt'", PROMPT) == "'prompt'\n"
        terminal.type("c\n")
        await found.runs_on()
        terminal.type(leave)
        status, rest = await terminal.finish()
        assert (status, rest.splitlines()[-1]) == (0, "detached; rank 0 continues")
        assert "the job has ended" not in rest
        await found.runs_on()


async def test_interrupted_connection(tmp_path):
    """While nothing reaches the job, the answers to a line and to Ctrl-C state that, not that the job is running."""
    (outage := tmp_path / "outage").touch()
    async with looping(tmp_path) as found, pdb(found.port, outage=str(outage)) as terminal:
        await terminal.expect(PROMPT)
        terminal.type("c\n")
        await found.runs_on()
        outage.write_text("the tunnel to node-1 is reconnecting")
        text = f"{outage.read_text()}; a command that has not reached the job is executed once it is connected again\n"
        terminal.type("p 1\n")
        shown = await terminal.expect(text)
        assert shown.splitlines(keepends=True)[-1] == f"not executed: {text}"
        assert "job is running" not in shown
        assert (await terminal.interrupt(text)).endswith(f"not paused: {text}")
        outage.write_text("")
        await terminal.interrupt(PROMPT)
        assert await terminal.ask("p 1", PROMPT) == "1\n"
        terminal.type(CTRL_D)
        assert (await terminal.finish())[0] == 0


async def test_leaving_before_the_first_stop(tmp_path):
    """A debugger that waits for a breakpoint detaches at q."""
    async with looping(tmp_path) as found, pdb(found.port, stop=False) as terminal:
        await terminal.expect("the job is running; Ctrl-C pauses it, q or Ctrl-D detaches\n")
        terminal.type("q\n")
        status, rest = await terminal.finish()
        assert (status, rest.splitlines()[-1]) == (0, "detached; rank 0 continues")
        await found.runs_on()


async def test_lines_typed_ahead(tmp_path):
    """Lines that are pasted behind a step are executed where the step ends."""
    async with looping(tmp_path) as found, pdb(found.port, typed_ahead=DEADLINE) as terminal:
        await terminal.expect(PROMPT)
        terminal.type("tbreak looping.py:9\nc\nn\np 'pasted'\n")
        assert "(10)work()" in await terminal.expect("\n'pasted'\n")
        await terminal.expect(PROMPT)
        terminal.type(CTRL_D)
        assert (await terminal.finish())[0] == 0


async def test_counting_program(tmp_path):
    """A job that waits for its debugger stops at a breakpoint given beforehand, and then counts to its end."""
    async with debuggee(tmp_path) as (running, port, script):
        where = f"{script}:{LINE}, number == 7"
        commands = ["p number", "cl", "c"]
        status, out, err = await scripted(port, *commands, breakpoints=[where], stop=False)
        assert (status, err) == (0, "")
        assert out.splitlines() == [
            "attaching to rank 0; h shows the commands, q or Ctrl-D leaves the job running",
            f"Breakpoint 1 at {script}:{LINE} if number == 7",
            "the job is running; Ctrl-C pauses it, q or Ctrl-D detaches",
            f"> {script}({LINE})count()",
            "-> square = number * number",
            "7",
            f"Removed: Breakpoint 1 at {script}:{LINE} if number == 7",
            "1000000",
            "the job has ended",
        ]
        assert await running.finish() == (0, ["1000000"], "")


async def test_looking_around(tmp_path):
    """Frames, arguments, variables, source and types are those of the place where the job stands."""
    async with looping(tmp_path) as found:
        script = str(found.script)
        commands = {
            "where": [f"  {script}(11)work()", "-> total += scale(part)", f"> {script}(5)scale()"],
            "args": ["value = 2", "factor = 2", "offset = 0"],
            "s": [f"> {script}(6)scale()", "-> return scaled + offset"],
            "locals": ["factor = 2", "offset = 0", "scaled = 4", "value = 2"],
            "p locals()": ["factor = 2\noffset = 0\nscaled = 4\nvalue = 2\n"],
            "ll": ["  4    def scale(value, factor=2, *, offset=0):", "  5        scaled = value * factor"],
            "l 1, 2": ["  1    import sys, time", "  2    from pathlib import Path"],
            "l .": ["  1    import sys, time", "  6 ->     return scaled + offset"],
            "l 500": ["[end of file]"],
            "up": [f"> {script}(11)work()", "-> total += scale(part)"],
            "p part, total": ["(2, 2)"],
            "whatis total": ["<class 'int'>"],
            "pp [['a' * 60] * 2]": ["[['" + "a" * 60 + "',", "  '" + "a" * 60 + "']]"],
            "down": [f"> {script}(6)scale()"],
            "d": ["*** this is the innermost frame"],
            "p part": ["*** NameError: name 'part' is not defined"],
            "p 1 +": ["*** SyntaxError: invalid syntax"],
            "1 / 0": ["*** ZeroDivisionError: division by zero"],
            "p": ["*** an expression is missing"],
            "u none": ["*** invalid number: 'none'"],
            "l x": ["*** invalid line numbers"],
            "threads": ["> 1 MainThread"],
            "thread 77": ["*** no such thread: '77'"],
            "thread 1": [f"> {script}(6)scale()"],
            "h nothing": ["*** no such command: 'nothing'"],
            "h pp": ["pp expression"],
            "?": ["w, where, bt"],
        }
        status, out, _ = await scripted(found.port, *commands, "q", breakpoints=[f"{script}:5, value == 2"], stop=False)
        assert status == 0
        at = 0
        for command, expected in commands.items():
            for text in expected:
                assert text in out[at:], command
                at = out.index(text, at)
        await found.runs_on()


async def test_moving(tmp_path):
    """Breakpoints by line, file and function, temporary ones, until, return, jump and assignments do what pdb's do."""
    async with looping(tmp_path) as found:
        script = str(found.script)
        status, out, _ = await scripted(
            found.port,
            *(
                "tbreak looping.py:9",
                "c",
                "b",
                "n",
                "n",
                "until",
                "p part, total",
                "r",
                "b scale, value == 1",
                "c",
                "n",
            ),
            *("scaled = 40", "p scaled", "j 5", "n", "p scaled", "r", "cl 2", "b looping.py:12", "c", "b 999, oops"),
            *("cl looping.py:12", "b", "b Path.exists", "until 2", "b nonsense", "b time.sleep", "j x", "j 1", "cl 9"),
            "detach",
            breakpoints=[],
        )
        assert status == 0
        lines = iter(out.splitlines())
        for expected in [
            f"Temporary breakpoint 1 at {script}:9",
            f"> {script}(9)work()",
            "no breakpoints",
            f"> {script}(10)work()",
            f"> {script}(11)work()",
            f"> {script}(12)work()",
            "(2, 6)",
            f"> {script}(18)run()",
            f"Breakpoint 2 at {script}:5 if value == 1",
            f"> {script}(5)scale()",
            f"> {script}(6)scale()",
            "40",
            f"> {script}(5)scale()",
            f"> {script}(6)scale()",
            "2",
            f"> {script}(11)work()",
            f"Removed: Breakpoint 2 at {script}:5 if value == 1",
            f"Breakpoint 3 at {script}:12",
            f"> {script}(12)work()",
            f"Removed: Breakpoint 3 at {script}:12",
        ]:
            assert expected in lines, expected
        rest = out[out.index("Removed: Breakpoint 3") :]
        assert "pathlib" in rest
        assert "*** 'nonsense' is neither a line nor a function here" in rest
        assert "*** 'time.sleep' is neither a line nor a function here" in rest
        assert "*** invalid line: 'x'" in rest
        assert "no such breakpoint" in rest
        await found.runs_on()


@pytest.mark.parametrize(
    ("move", "line"), [("n", "(10)work()"), ("r", "(18)run()"), ("until", "(12)work()"), ("u;n", "(19)run()")]
)
async def test_a_move_from_a_selected_frame(tmp_path, move, line):
    """`n`, `r` and `until` apply to the frame that `u` has selected, as in pdb."""
    async with looping(tmp_path) as found:
        commands = ["u", *move.split(";"), "q"]
        _, out, _ = await scripted(found.port, *commands, breakpoints=[f"{found.script}:5, value == 0"], stop=False)
        assert f"> {found.script}{line}" == [shown for shown in out.splitlines() if shown.startswith("> /")][-1]


async def test_a_move_from_a_selected_frame_ends_at_a_breakpoint(tmp_path):
    """`n` from a selected frame stops at a breakpoint in a function that this frame has called."""
    async with looping(tmp_path) as found:
        script = found.script
        commands = ["b 6", "u", "n", "q"]
        _, out, _ = await scripted(found.port, *commands, breakpoints=[f"{script}:5, value == 0"], stop=False)
        assert f"> {script}(6)scale()" == [shown for shown in out.splitlines() if shown.startswith("> /")][-1]


async def test_breakpoints_in_files_that_do_not_exist(tmp_path):
    """They are refused in one line with the loaded files of that name, and have no number."""
    reason = "Breakpoint in file that does not exist"
    async with looping(tmp_path) as found:
        wrong = tmp_path / "src" / "looping.py"
        lines = [f"b {tmp_path}/no.py:10", f"b {wrong}:9", "b", f"b {found.script}:9"]
        status, out, _ = await scripted(found.port, *lines, breakpoints=["missing.py:3"], cwd=str(tmp_path))
    assert status == 0
    shown = [line for line in out.splitlines() if line.startswith(("***", "no breakpoints", "Breakpoint"))]
    assert shown == [
        f"*** no breakpoint set at {tmp_path}/missing.py:3: {reason}",
        f"*** no breakpoint set at {tmp_path}/no.py:10: {reason}. hint: loaded files of this name: none",
        f"*** no breakpoint set at {wrong}:9: {reason}. hint: loaded files of this name: {found.script}",
        "no breakpoints",
        f"Breakpoint 1 at {found.script}:9",
    ]


async def test_breakpoint_in_one_of_two_files_of_a_name(tmp_path):
    """Of the loaded files of that name, the user's is chosen; an installed one only by more than its name."""
    paths = "import sys\nsys.path[:0] = [{0!r}, {0!r} + '/site-packages']\n"
    code = f"{paths}import package.model, own.model, package.train\n{LOOP}"
    for path in ("site-packages/package", "own"):
        (tmp_path / path).mkdir(parents=True)
        for name in ("model.py", "train.py"):
            (tmp_path / path / name).write_text("value = 1\n")
    async with looping(tmp_path, code.format(str(tmp_path))) as found:
        _, out, _ = await scripted(found.port, "b model.py:1", "b train.py:1", "b package/train.py:1", "q")
    assert f"\nBreakpoint 1 at {tmp_path}/own/model.py:1\n" in out
    assert "no breakpoint set at " in out
    assert f"\nBreakpoint 2 at {tmp_path}/site-packages/package/train.py:1\n" in out


async def test_a_condition_without_a_comma(tmp_path):
    """The hint shows the form with a condition."""
    async with looping(tmp_path) as found:
        _, out, _ = await scripted(found.port, "b 9 if number > 10", "q")
    hint = "hint: use b 12, b file.py:12, b f or b 12, x > 1"
    assert f"*** '9 if number > 10' is neither a line nor a function here. {hint}" in out.splitlines()


async def test_the_end_of_input_while_nothing_can_stop_the_job(tmp_path):
    """Without a breakpoint or a pause, lines of a pipe are executed at once, and their end detaches."""
    async with looping(tmp_path) as found:
        status, out, _ = await scripted(found.port, f"b {found.script}:2", "p 1", stop=False)
        await found.runs_on()
    assert status == 0
    assert out.splitlines()[-3:] == [
        f"Breakpoint 1 at {found.script}:2",
        "*** the job is running. hint: enter 'c' to wait until it stops, then press Ctrl-C to pause it",
        "no more input; detached; rank 0 continues",
    ]


async def test_temporary_breakpoint_at_another_stop(tmp_path):
    """A temporary breakpoint is removed at the first stop at its line, here after `until`; others remain."""
    async with looping(tmp_path) as found:
        script = str(found.script)
        commands = ["tbreak 10", "b 11", "until 10", "b", "q"]
        _, out, _ = await scripted(found.port, *commands, breakpoints=[f"{script}:9"], stop=False)
        after = out[out.rindex(f"> {script}(10)work()") :].splitlines()
        assert [f"Breakpoint 1 at {script}:9", f"Breakpoint 3 at {script}:11"] == after[2:4]


async def test_output_of_the_job(tmp_path):
    """What the job prints is shown while it runs, as it is when it is made to print at the prompt."""
    code = """
        import sys, time
        from pathlib import Path
        while not Path(sys.argv[2]).read_text():
            time.sleep(0.01)
        print("output", flush=True)
        while True:
            time.sleep(0.01)
    """
    async with looping(tmp_path, code) as found, pdb(found.port) as terminal:
        await terminal.expect(PROMPT)
        assert await terminal.ask("print('printed')", PROMPT) == "printed\n"
        assert await terminal.ask("for n in range(2): print(n)", PROMPT) == "0\n1\n"
        (tmp_path / "progress").write_text("go")
        terminal.type("c\n")
        await terminal.expect("c\noutput\n")
        terminal.type(CTRL_C)
        await terminal.expect(PROMPT)
        terminal.type(CTRL_D)
        assert (await terminal.finish())[0] == 0
