"""Facts about the terminal debugger: a real debugpy, on a real terminal or with commands from a pipe."""

import asyncio
import contextlib
import signal
import textwrap
from pathlib import Path

import pytest

from relay_client.dap.client import DapClient
from tests.support.debuggee import LINE, debuggee
from tests.support.jobs import ROOT, TIMEOUT, job
from tests.support.terminal import CTRL_C, CTRL_D, on_terminal

PROMPT = "(rank 0) "
PDB = """
from relay_client.pdb import local_session, run_pdb
from relay_core.console import run_program

def main(arguments):
    options = eval(arguments[1])
    job = local_session("127.0.0.1", int(arguments[0]), crashed=options.pop("crashed", False))
    return run_pdb(job, title="rank 0", **options)

sys.exit(run_program("relay-client", main))
"""
LOOP = """\
import sys, time
from pathlib import Path

def scale(value, factor=2, *, offset=0):
    scaled = value * factor
    return scaled + offset

def work(number):
    total = 0
    for part in range(3):
        total += scale(part)
    return total + number

def run(progress):
    number = 0
    while True:
        number += 1
        work(number)
        progress.write_text(str(number))
        time.sleep(0.005)

run(Path(sys.argv[2]))
"""
LISTEN = """
import debugpy, runpy
print(debugpy.listen(("127.0.0.1", 0))[1], flush=True)
runpy.run_path(sys.argv[1], run_name="__main__")
"""


class Looping:
    """A job that counts for ever, and its progress."""

    def __init__(self, port, script, progress):
        self.port = port
        self.script = script
        self._progress = progress

    def line(self, code):
        """Return the number of the line with this code."""
        return next(n for n, line in enumerate(self.script.read_text().splitlines(), 1) if code in line)

    async def runs_on(self):
        """Wait until it has got on."""
        before = self._progress.read_text()
        deadline = asyncio.get_running_loop().time() + TIMEOUT
        while self._progress.read_text() in {before, ""}:
            assert asyncio.get_running_loop().time() < deadline, "the job stands still"
            await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def looping(directory, code=LOOP):
    script, progress = directory / "looping.py", directory / "progress"
    script.write_text(textwrap.dedent(code))
    progress.write_text("")
    async with job(LISTEN, str(script), str(progress), PYDEVD_DISABLE_FILE_VALIDATION="1") as running:
        found = Looping(int(await running.line()), script, progress)
        found.job = running
        yield found


def pdb(port, **options):
    return on_terminal(PDB, str(port), repr(options))


async def scripted(port, *lines, **options):
    """Run the debugger with commands from a pipe; return its status, stdout and stderr."""
    async with job(PDB, str(port), repr(options)) as running:
        out, err = await asyncio.wait_for(running.process.communicate("\n".join(lines).encode()), TIMEOUT)
        return running.process.returncode, out.decode(), err.decode()


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
                assert (status, rest.splitlines()[-1]) == (0, "detached; rank 0 runs on")
            await found.runs_on()


async def test_keys_at_the_prompt(tmp_path):
    """Ctrl-C drops the line that is being typed, an empty line repeats a move, the arrow key recalls; Ctrl-D leaves."""
    async with looping(tmp_path) as found, pdb(found.port, breakpoints=[f"{found.script}:9"], stop=False) as terminal:
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
        assert "detached; rank 0 runs on" in rest
        await found.runs_on()


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
            "u none": ["*** 'none' is no number"],
            "l x": ["*** lines are numbers"],
            "threads": ["> 1 MainThread"],
            "thread 77": ["*** there is no thread '77'"],
            "thread 1": [f"> {script}(6)scale()"],
            "h nothing": ["*** there is no command 'nothing'"],
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
        assert "*** 'nonsense' is no line and no function here" in rest
        assert "*** 'time.sleep' is no line and no function here" in rest
        assert "*** 'x' is no line" in rest
        assert "no such breakpoint" in rest
        await found.runs_on()


async def test_output_of_the_job(tmp_path):
    """What the job prints is shown while it runs, as it is when it is made to print at the prompt."""
    code = """
        import sys, time
        from pathlib import Path
        while not Path(sys.argv[2]).read_text():
            time.sleep(0.01)
        print("said", flush=True)
        while True:
            time.sleep(0.01)
    """
    async with looping(tmp_path, code) as found, pdb(found.port) as terminal:
        await terminal.expect(PROMPT)
        assert await terminal.ask("print('printed')", PROMPT) == "printed\n"
        assert await terminal.ask("for n in range(2): print(n)", PROMPT) == "0\n1\n"
        (tmp_path / "progress").write_text("go")
        terminal.type("c\n")
        await terminal.expect("c\nsaid\n")
        terminal.type(CTRL_C)
        await terminal.expect(PROMPT)
        terminal.type(CTRL_D)
        assert (await terminal.finish())[0] == 0


async def test_job_in_c_code(tmp_path):
    """Where the job sleeps in C it does not stop; the debugger says so and where, and it stops when it comes back."""
    code = """
        import os
        def wait():
            while os.read(0, 1):
                pass
        wait()
    """
    async with looping(tmp_path, code) as found, pdb(found.port) as terminal:
        shown = await terminal.expect(PROMPT)
        assert "the job is in C code and stops when it comes back to Python" in shown
        assert f"> {found.script}(4)wait()" in shown
        assert f"  {found.script}(4)wait()" in await terminal.ask("w", PROMPT)
        assert "*** the job is running" in await terminal.ask("p 1", PROMPT)
        terminal.type("c\n")
        await terminal.expect("c\n")
        await terminal.interrupt(PROMPT)
        terminal.type("typed")
        await terminal.expect("typed")
        found.job.process.stdin.write(b".")
        shown = await terminal.expect(PROMPT + "typed")
        assert shown.startswith(f"\r\x1b[K> {found.script}(")
        await terminal.interrupt(PROMPT)
        assert await terminal.ask("p 1", PROMPT) == "1\n"
        terminal.type(CTRL_D)
        assert (await terminal.finish())[0] == 0


async def test_job_that_waits(tmp_path):
    """A job that waits for its debugger stops in its own code, not in the library that waits for it."""
    code = """
        import sys, threading, time
        from relay_agent import debuggee
        def watch(main=threading.main_thread().ident):
            while sys._current_frames()[main].f_globals["__name__"] not in ("threading", debuggee.__name__):
                time.sleep(0.01)
            open(sys.argv[2], "w").write("it waits")
        threading.Thread(target=watch, daemon=True).start()
        debuggee.wait_for_attach(60, threading.Event())
        one = 1
        two = 2
        three = 3
        print("counted")
    """
    async with looping(tmp_path, code) as found:
        await found.runs_on()
        status, out, _ = await scripted(found.port, "n", "n", "n", "p one", "c")
        assert status == 0
        lines = out.splitlines()
        places = [line for line in lines if line.startswith("> ")]
        waits = found.line("debuggee.wait_for_attach(")  # where some debugpy stop once more, on the way out of the call
        own = [f"> {found.script}({line})<module>()" for line in range(waits, waits + 5)]
        assert len(places) == 4
        assert places == sorted(places, key=own.index)
        assert {"1", "counted", "the job has ended"} <= set(lines)


async def test_held_crash(tmp_path):
    """A process that is held at an exception shows it, and stands at the raising frame with its variables."""
    code = """
        import debugpy, sys
        def divide(number, by):
            return number / by
        try:
            divide(1, 0)
        except ZeroDivisionError as error:
            debugpy.wait_for_client()
            debugpy.trigger_exception_handler(error, as_uncaught=False)
            sys.exit(3)
    """
    async with looping(tmp_path, code) as found:
        status, out, _ = await scripted(found.port, "p number, by", "up", "c", crashed=True)
        assert status == 0
        lines = out.splitlines()
        assert lines[1:3] == ["*** ZeroDivisionError: division by zero", f"> {found.script}(4)divide()"]
        assert "(1, 0)" in lines
        assert f"> {found.script}(6)<module>()" in lines
        assert (await found.job.finish())[0] == 3


async def test_uncaught_exception(tmp_path):
    """An uncaught exception stops the job where it is raised, and the job then ends as it would have."""
    code = """
        import time
        while not globals().get("go"):
            time.sleep(0.01)
        {}["key"]
    """
    async with looping(tmp_path, code) as found:
        status, out, _ = await scripted(found.port, "go = True", "c", "p go", "c")
        assert status == 0
        assert "*** KeyError: 'key'" in out
        assert f"> {found.script}(5)<module>()" in out
        assert (await found.job.finish())[0] == 1


async def test_job_that_is_killed(tmp_path):
    """A job that ends under the debugger ends the session."""
    async with looping(tmp_path) as found, pdb(found.port) as terminal:
        await terminal.expect(PROMPT)
        terminal.type("c\n")
        await found.runs_on()
        found.job.process.kill()
        await terminal.expect("the job has ended")
        assert (await terminal.finish())[0] == 0


@pytest.mark.parametrize("how", ["SIGTERM", "SIGHUP", "hang up", "SIGTERM while it runs"])
async def test_program_that_is_ended(tmp_path, how):
    """A debugger that is told to end, or whose terminal is closed, lets the job go first."""
    async with looping(tmp_path) as found, pdb(found.port) as terminal:
        await terminal.expect(PROMPT)
        if how.endswith("it runs"):
            terminal.type("c\n")
            await found.runs_on()
        if how == "hang up":
            terminal.hang_up()
        else:
            await terminal.kill(getattr(signal, how.split()[0]))
        assert (await terminal.finish())[0] == 0
        await found.runs_on()


async def test_interrupted_evaluation(tmp_path):
    """Ctrl-C gives up waiting for an expression that takes too long."""
    async with looping(tmp_path) as found, pdb(found.port) as terminal:
        await terminal.expect(PROMPT)
        progress = tmp_path / "progress"
        terminal.type(f"[open({str(progress)!r}, 'w').write('busy'), __import__('time').sleep(3)]\n")
        while progress.read_text() != "busy":
            await asyncio.sleep(0.01)
        terminal.type(CTRL_C)
        assert "given up; the job may still be working on it" in await terminal.expect(PROMPT)
        assert (await terminal.ask("p 'back'", PROMPT)).endswith("'back'\n")


async def test_nothing_to_attach_to(tmp_path):
    """What cannot be attached to is an error in one sentence; the job of the one who was first is not disturbed."""
    status, out, err = await scripted(1)
    assert (status, out, err) == (12, "", "relay-client: error: nothing answers on 127.0.0.1:1\n")
    async with looping(tmp_path) as found, await DapClient.connect("127.0.0.1", found.port) as first:
        await first.attach({})
        status, _, err = await scripted(found.port)
        assert status == 1
        assert "already being debugged" in err
        await found.runs_on()
        status, _, err = await scripted(found.port, breakpoints=["work"])
        assert (status, err.splitlines()[0]) == (
            2,
            "relay-client: error: the breakpoint 'work' is not understood. hint: write it as train.py:12",
        )


async def test_lost_connection(tmp_path):
    """A connection that breaks ends the program with its own status; what is typed then is not carried out."""
    connections = []

    async def forward(reader, writer):
        to_reader, to_writer = await asyncio.open_connection("127.0.0.1", port)
        connections.append(writer)

        async def copy(source, sink):
            with contextlib.suppress(OSError):
                while data := await source.read(65536):
                    sink.write(data)
            sink.close()

        await asyncio.gather(copy(reader, to_writer), copy(to_reader, writer))

    async with looping(tmp_path) as found:
        port = found.port
        server = await asyncio.start_server(forward, "127.0.0.1", 0)
        async with server, pdb(server.sockets[0].getsockname()[1]) as terminal:
            await terminal.expect(PROMPT)
            connections[0].close()
            await terminal.expect("the debug adapter closed the connection")
            terminal.type("p 1\n")
            status, rest = await terminal.finish()
            assert status == 12
            assert "relay-client: error: the debug adapter closed the connection" in rest
        await found.runs_on()
        assert ROOT == Path(__file__).parents[2]
