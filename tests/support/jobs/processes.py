"""Small Python programs that play the job: they run in processes of their own, as the library under test does."""

import asyncio
import asyncio.subprocess
import contextlib
import os
import signal
import sys
import textwrap
from collections.abc import AsyncIterator
from pathlib import Path

import psutil

from relay_core.compat import timeout
from tests.support.machine.deadline import DEADLINE
from tests.support.machine.programs import communicate

ROOT = Path(__file__).resolve().parents[3]


class Job:
    """A running program whose output is read line by line."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    @property
    def pid(self) -> int:
        return self.process.pid

    async def line(self) -> str:
        """Return the next line of its stdout, or "" at its end."""
        assert self.process.stdout is not None
        try:
            return (await asyncio.wait_for(self.process.stdout.readline(), DEADLINE)).decode().rstrip("\n")
        except asyncio.TimeoutError:
            raise AssertionError(f"the job printed no line within {DEADLINE:.0f} s; {await self._wrote()}") from None

    async def finish(self, answer: str = "") -> tuple[int, list[str], str]:
        """Send it a last line, and return its status, the rest of its stdout, and its stderr."""
        try:
            out, err = await asyncio.wait_for(communicate(self.process, answer.encode() + b"\n"), DEADLINE)
        except asyncio.TimeoutError:
            raise AssertionError(f"the job did not end within {DEADLINE:.0f} s; {await self._wrote()}") from None
        assert self.process.returncode is not None
        print(err.decode(), file=sys.stderr)
        return self.process.returncode, out.decode().splitlines(), err.decode()

    async def _wrote(self) -> str:
        """Kill the job, and return what it has written to stderr, as far as nothing else has read it."""
        assert self.process.stderr is not None
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        written = b""
        with contextlib.suppress(asyncio.TimeoutError):  # a process that it has started may keep stderr open
            while data := await asyncio.wait_for(self.process.stderr.read(65536), 1):
                written += data
        return f"it wrote:\n{written.decode(errors='replace')}"


@contextlib.asynccontextmanager
async def job(code: str, *arguments: str, cwd: Path | None = None, **environment: str) -> AsyncIterator[Job]:
    """Run `code` as a script that can import this project, without settings for any relay but those given.

    Warnings are errors in it, and it sees this project through its own `sys.path`, not through PYTHONPATH.
    """
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("RELAY_", "PYTHON"))}
    head = f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-W", "error", "-c", head + textwrap.dedent(code), *arguments),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=cwd,
        env=inherited | environment,
    )
    try:
        yield Job(process)
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await asyncio.wait_for(process.communicate(), DEADLINE)


async def run_job(code: str, *arguments: str, **environment: str) -> tuple[int, list[str], str]:
    """Run `code` to its end, and return its status, the lines of its stdout, and its stderr."""
    async with job(code, *arguments, **environment) as running:
        return await running.finish()


async def suspend(pid: int) -> None:
    """Stop a process with SIGSTOP, and wait until none of its threads runs; on a busy machine that takes a while."""
    os.kill(pid, signal.SIGSTOP)
    async with timeout(DEADLINE):
        while not is_stopped(pid):
            await asyncio.sleep(0.005)


def is_stopped(pid: int) -> bool:
    """Whether all threads of a process are stopped by a signal."""
    threads = Path(f"/proc/{pid}/task").glob("*/stat")
    return all(stat.read_text().rpartition(")")[2].split()[0] == "T" for stat in threads)  # proc(5): pid (name) state


async def gone(pid: int) -> bool:
    """Wait until a process has ended, and say whether it did; init may take its time to reap an orphan.

    The main thread is a zombie as soon as it has ended; the other threads may still keep descriptors open.
    """
    deadline = asyncio.get_running_loop().time() + DEADLINE
    with contextlib.suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        while process.status() != psutil.STATUS_ZOMBIE or process.num_threads() > 1:
            if asyncio.get_running_loop().time() > deadline:
                return False
            await asyncio.sleep(0.02)
    return True


async def end_family(pid: int) -> None:
    """Kill a process, if it still runs, and all that it has started, the launchers' own sessions included."""
    try:
        family = psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return
    for member in [pid, *(child.pid for child in family)]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(member, signal.SIGKILL)
    for child in family:
        await gone(child.pid)
