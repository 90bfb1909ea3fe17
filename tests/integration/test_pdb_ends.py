"""Facts about how sessions of `relay-client pdb` begin in unusual places, and how they end."""

import asyncio
import contextlib
import signal

import pytest

from relay_client.dap import DapClient
from tests.support.debuggers.pdb_jobs import PROMPT, looping, pdb, scripted
from tests.support.machine.deadline import DEADLINE
from tests.support.machine.terminal import CTRL_C, CTRL_D


async def test_job_in_c_code(tmp_path):
    """A job that sleeps in C does not stop; the debugger reports that and the place; the job stops when it returns."""
    code = """
        import os
        def wait():
            while os.read(0, 1):
                pass
        wait()
    """
    async with looping(tmp_path, code) as found, pdb(found.port) as terminal:
        shown = await terminal.expect(PROMPT)
        assert "the job is running C code and will stop when it returns to Python" in shown
        assert f"> {found.script}(4)wait()" in shown
        assert f"  {found.script}(4)wait()" in await terminal.ask("w", PROMPT)
        assert (
            "*** the job is running. hint: enter 'c' to wait for the stop; 'w' shows the stack, and "
            "'relay-client stacks --locals' its variables\n"
        ) == await terminal.ask("p 1", PROMPT)
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
        from relay_agent.debuggee.debugger import debugger
        def watch(main=threading.main_thread().ident):
            while sys._current_frames()[main].f_globals["__name__"] not in ("threading", debugger.__module__):
                time.sleep(0.01)
            open(sys.argv[2], "w").write("it waits")
        threading.Thread(target=watch, daemon=True).start()
        debugger.wait_for_attach(3600, threading.Event())
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
        waits = found.line("debugger.wait_for_attach(")  # where some debugpy stop once more, on the way out of the call
        own = [f"> {found.script}({line})<module>()" for line in range(waits, waits + 5)]
        assert len(places) == 4
        assert places == sorted(places, key=own.index)
        assert {"1", "counted", "the job has ended"} <= set(lines)
        assert "Frame skipped" not in out


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
        status, out, _ = await scripted(found.port, "p number, by", "w", "up", "c", "c", crashed=True)
        assert status == 0
        lines = out.splitlines()
        assert lines[1:3] == ["*** ZeroDivisionError: division by zero", f"> {found.script}(4)divide()"]
        assert "(1, 0)" in lines
        assert "  <string>(5)<module>()" in lines  # pydevd marks the current frame in its name
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
        status, out, _ = await scripted(found.port, "go = True", "c", "p go", "c", "c")
        assert status == 0
        assert "*** KeyError: 'key'" in out
        assert f"> {found.script}(5)<module>()" in out
        assert (await found.job.finish())[0] == 1


async def test_resuming_at_an_uncaught_exception(tmp_path):
    """Each command that would let the job run, and so end, is refused until the same line is entered again."""
    code = """
        import time
        while not globals().get("go"):
            time.sleep(0.01)
        {}["key"]
    """
    async with looping(tmp_path, code) as found, pdb(found.port) as terminal:
        await terminal.expect(PROMPT)
        await terminal.ask("go = True", PROMPT)
        assert "*** KeyError: 'key'" in await terminal.ask("c", PROMPT)
        for line in ["n", "s", "c", "r", "unt", "j 5", "n"]:
            refused = (
                "*** not executed: the job ends with this exception once it runs. hint: to let it run nevertheless"
            )
            assert f"{refused}, enter '{line}' again\n" == await terminal.ask(line, PROMPT)
        assert "" == await terminal.ask("", PROMPT)  # does not repeat a refused command
        assert "True\n" == await terminal.ask("p go", PROMPT)
        assert "not executed" in await terminal.ask("n", PROMPT)
        terminal.type("n\n")
        await terminal.expect("the job has ended")
        assert (await terminal.finish())[0] == 0
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


@pytest.mark.parametrize("how", ["SIGTERM", "SIGHUP", "hang up", "SIGTERM while it runs", "SIGHUP while it runs"])
async def test_program_that_is_ended(tmp_path, how):
    """A debugger that is ended by a signal, or whose terminal is closed, lets the job run on, and shows the reason."""
    async with looping(tmp_path) as found, pdb(found.port) as terminal:
        await terminal.expect(PROMPT)
        if how.endswith("it runs"):
            terminal.type("c\n")
            await found.runs_on()
        if how == "hang up":
            terminal.hang_up()
        else:
            await terminal.kill(getattr(signal, how.split()[0]))
        status, rest = await terminal.finish()
        assert status == 0
        if how != "hang up":
            assert rest.splitlines()[-1] == f"received {how.split()[0]}; detached; rank 0 continues"
        assert "the job has ended" not in rest
        await found.runs_on()


async def test_commands_that_end_before_the_job(tmp_path):
    """When a script of commands has ended, the debugger detaches and states the reason."""
    async with looping(tmp_path) as found:
        status, out, _ = await scripted(found.port, "p 'last'")
        assert (status, out.splitlines()[-2:]) == (0, ["'last'", "no more input; detached; rank 0 continues"])
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
        assert "stopped waiting; the job may still be executing the command" in await terminal.expect(PROMPT)
        answer = await terminal.ask("p 'back'", PROMPT)
        assert answer.startswith("the job is still executing the previous command\n")
        assert answer.endswith("'back'\n")
        assert await terminal.ask("p 'next'", PROMPT) == "'next'\n"


@pytest.mark.parametrize("leave", ["q", "SIGTERM"])
async def test_leaving_during_an_evaluation(tmp_path, leave):
    """A debugger that leaves while an expression runs reports that; the job continues when the expression has ended."""
    busy, go = tmp_path / "busy", tmp_path / "go"
    async with looping(tmp_path) as found, pdb(found.port) as terminal:
        await terminal.expect(PROMPT)
        terminal.type(f"while not __import__('os').path.exists({str(go)!r}): open({str(busy)!r}, 'w').close()\n")
        while not busy.exists():
            await asyncio.sleep(0.01)
        if leave == "q":
            await terminal.interrupt(PROMPT)
            terminal.type("q\n")
        else:
            await terminal.kill(signal.SIGTERM)
        status, rest = await terminal.finish()
        assert status == 0
        assert rest.splitlines()[-1].endswith("detached; rank 0 continues once the command has ended")
        go.touch()
        await found.runs_on()


async def test_nothing_to_attach_to(tmp_path):
    """What cannot be attached to is an error in one sentence; the job of the one who was first is not disturbed."""
    status, out, err = await scripted(1)
    assert (status, out, err) == (12, "", "relay-client: error: nothing is listening on 127.0.0.1:1\n")
    async with looping(tmp_path) as found, await DapClient.connect("127.0.0.1", found.port, within=DEADLINE) as first:
        await first.attach({}, within=DEADLINE)
        status, _, err = await scripted(found.port)
        assert status == 1
        assert "already being debugged" in err
        await found.runs_on()
        status, _, err = await scripted(found.port, breakpoints=["work"])
        assert (status, err.splitlines()[0]) == (
            2,
            "relay-client: error: invalid breakpoint: 'work'. hint: write it as -b train.py:12",
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
