"""Facts about signals: a first one cancels the program, a second one ends its process whatever the program does."""

import signal

import pytest

from tests.support.jobs.processes import job

STUBBORN = """
import asyncio, logging, time
from relay_core.program.run import run_until_stopped

logging.basicConfig(level=logging.INFO, format="%(message)s")

async def body():
    asyncio.get_running_loop().run_in_executor(None, time.sleep, 3600)
    print("ready", flush=True)
    while True:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            print("cancelled", flush=True)

sys.exit(run_until_stopped(body(), closing="closing nothing"))
"""
ORDERLY = """
import asyncio, logging
from relay_core.program.run import run_until_stopped

logging.basicConfig(level=logging.INFO, format="%(message)s")

async def body():
    try:
        print("ready in", type(asyncio.get_running_loop()).__module__.partition(".")[0], flush=True)
        await asyncio.sleep(3600)
    finally:
        print("cancelled", flush=True)

sys.exit(run_until_stopped(body()))
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_second_signal_forces_the_end(number: signal.Signals) -> None:
    """A program that ignores its cancellation, and a thread that does not end, end with status 130."""
    async with job(STUBBORN) as running:
        for line in ("ready", "cancelled"):
            assert line == await running.line()
            running.process.send_signal(number)
        status, _, stderr = await running.finish()
        assert 130 == status
        assert ["stopping: closing nothing; a second Ctrl-C exits immediately"] == stderr.splitlines()


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="this system has no SIGHUP")
async def test_a_terminal_that_is_closed() -> None:
    """Nobody can press Ctrl-C there, so the log does not mention it; a later signal still forces the end."""
    async with job(STUBBORN) as running:
        for line, number in (("ready", signal.SIGHUP), ("cancelled", signal.SIGTERM)):
            assert line == await running.line()
            running.process.send_signal(number)
        status, _, stderr = await running.finish()
        assert (130, ["stopping: closing nothing"]) == (status, stderr.splitlines())


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
async def test_one_signal_stops(loop: str) -> None:
    """A program that ends when it is cancelled has status 0; without something to close, nothing is logged."""
    pytest.importorskip(loop, reason=f"{loop} is not installed")
    async with job(ORDERLY, RELAY_EVENT_LOOP=loop) as running:
        assert f"ready in {loop}" == await running.line()
        running.process.send_signal(signal.SIGINT)
        assert (0, ["cancelled"], "") == await running.finish()


async def test_a_signal_before_the_event_loop_runs() -> None:
    """Ctrl-C while a program starts ends it with status 0, and no coroutine is reported as never awaited."""
    code = """
import gc, signal
from relay_core.program import run

async def body():
    print("not reached")

run.gc.freeze = lambda: signal.raise_signal(signal.SIGINT)
status = run.run_until_stopped(body())
gc.collect()
sys.exit(status)
"""
    async with job(code) as running:
        assert (0, [], "") == await running.finish()


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
async def test_a_signal_while_the_program_imports_modules(loop: str) -> None:
    """A coroutine that returns without waiting is cancelled too, and its caller knows; Ctrl-C works as before then."""
    pytest.importorskip(loop, reason=f"{loop} is not installed")
    code = """
import signal
from relay_client.cli.common import run_for_result

async def body():
    signal.raise_signal(signal.SIGINT)
    return True

print(run_for_result(body()), signal.getsignal(signal.SIGINT) is signal.default_int_handler)
"""
    async with job(code, RELAY_EVENT_LOOP=loop) as running:
        assert (0, ["None True"], "") == await running.finish()


@pytest.mark.parametrize("function", ["run_quietly(Namespace(verbose=False), body())", "run_for_result(body())"])
async def test_a_signal_before_this_module_is_imported(function: str) -> None:
    """Ctrl-C raises KeyboardInterrupt, and no coroutine is reported as never awaited."""
    code = f"""
import signal
from argparse import Namespace
from relay_client.cli.common import run_for_result, run_quietly

class Interrupt:
    def find_spec(name, path=None, target=None):
        if name == "relay_core.program.run":
            signal.raise_signal(signal.SIGINT)

sys.meta_path.insert(0, Interrupt)

async def body():
    print("not reached")

try:
    {function}
except KeyboardInterrupt:
    print("interrupted")
"""
    async with job(code) as running:
        assert (0, ["interrupted"], "") == await running.finish()


async def test_without_sighup() -> None:
    """A system without SIGHUP, such as Windows, has Ctrl-C."""
    async with job("import signal; del signal.SIGHUP\n" + ORDERLY, RELAY_EVENT_LOOP="asyncio") as running:
        assert "ready in asyncio" == await running.line()
        running.process.send_signal(signal.SIGINT)
        assert (0, ["cancelled"], "") == await running.finish()
