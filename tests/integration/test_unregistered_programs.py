"""`relay-agent run` above a program that never registers, because nothing of relay-debug runs in it."""

import asyncio
import contextlib
import sys
from pathlib import Path

import pytest

from tests.support.jobs.run_stage import Stage
from tests.support.machine.deadline import DEADLINE
from tests.support.machine.programs import communicate

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the processes of the job are read from /proc")

JOBS = {
    "export PYTHONPATH=src; {python} train.py; true": "PYTHONPATH was replaced",
    "exec env -i {python} train.py": "it was started without the environment of the run",
    "{python} -uE train.py; true": "python -E ignores the settings of the run",
    "PYTHONPATH={other}:$PYTHONPATH {python} train.py; true": "PYTHONPATH was changed",
}


async def test_the_log_names_why_a_program_cannot_be_debugged(tmp_path: Path):
    """One line for each job, with the process id and the script; the job continues."""
    stage = Stage(tmp_path)
    stage.write("train.py", "import os; print(os.getpid(), flush=True); input()")
    (tmp_path / "other").mkdir()
    stage.write("other/sitecustomize.py", "")
    async with contextlib.AsyncExitStack() as running:
        commands = [command.format(python=sys.executable, other=tmp_path / "other") for command in JOBS]
        jobs = [await running.enter_async_context(stage.start("sh", "-c", command)) for command in commands]
        for job, reason in zip(jobs, JOBS.values(), strict=True):
            assert job.stdout is not None
            assert job.stderr is not None
            pid = int(await asyncio.wait_for(job.stdout.readline(), DEADLINE))
            line = (await asyncio.wait_for(job.stderr.readline(), DEADLINE)).decode()
            assert line.startswith(f"relay-agent: pid {pid}, train.py, of this run cannot be debugged: {reason}")
            out, err = await asyncio.wait_for(communicate(job, b"\n"), DEADLINE)
            assert (0, b"", b"") == (job.returncode, out, err)
    assert [] == stage.record()


async def test_the_log_names_a_program_that_reads_its_code_from_stdin(tmp_path: Path):
    """One line, although a rule excludes such programs: this one runs longer than a helper."""
    stage = Stage(tmp_path)
    program = "import os, time\nwhile not os.path.exists('end'): time.sleep(0.01)\n"
    async with stage.start("sh", "-c", f"{sys.executable} - < {stage.write('program.txt', program)}; true") as job:
        assert job.stderr is not None
        line = (await asyncio.wait_for(job.stderr.readline(), DEADLINE)).decode()
        assert "of this run cannot be debugged: a program from stdin is not debugged. hint: " in line
        stage.write("end", "")
        out, err = await asyncio.wait_for(communicate(job, b""), DEADLINE)
    assert (0, b"", b"") == (job.returncode, out, err)
