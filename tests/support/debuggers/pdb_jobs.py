"""Jobs for `relay-client pdb`, and the debugger on a terminal or with commands from a pipe."""

import asyncio
import contextlib
import textwrap

from tests.support.jobs.processes import job
from tests.support.machine.deadline import DEADLINE
from tests.support.machine.programs import communicate
from tests.support.machine.terminal import on_terminal

PROMPT = "(rank 0) "
PDB = """
import contextlib
from pathlib import Path
from relay_client.dap import DapClient
from relay_client.pdb import prompt
from relay_client.pdb.debugger import DebugConnection
from relay_client.pdb.prompt import run_pdb
from relay_core.errors import NoListener
from relay_core.program.console import run_program

@contextlib.asynccontextmanager
async def local_session(port, *, crashed=False, cwd="", outage=None):
    async def connect():
        return await DapClient.connect("127.0.0.1", port)

    async with await connect() as client:
        def why():
            return NoListener(text) if outage and (text := Path(outage).read_text()) else None

        yield DebugConnection(client, connect, crashed, cwd, outage=why)

def main(arguments):
    options = eval(arguments[1])
    prompt.TYPED_AHEAD = options.pop("typed_ahead", prompt.TYPED_AHEAD)
    about = {name: options.pop(name) for name in ("crashed", "cwd", "outage") if name in options}
    job = local_session(int(arguments[0]), **about)
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
    """A job that counts forever, and its progress."""

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
        deadline = asyncio.get_running_loop().time() + DEADLINE
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


async def scripted(port: int, *lines: str, **options: object) -> tuple[int | None, str, str]:
    """Run the debugger with commands from a pipe; return its status, stdout and stderr."""
    async with job(PDB, str(port), repr(options)) as running:
        out, err = await asyncio.wait_for(communicate(running.process, "\n".join(lines).encode()), DEADLINE)
        return running.process.returncode, out.decode(), err.decode()
