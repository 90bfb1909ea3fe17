"""`relay-agent run` with real processes: the command is left alone, and exactly its programs take part.

What a process does when it takes part is not the matter here. In its place the jobs have a recorder, which they get by
a `sitecustomize` of their own: that it runs at all is a fact of its own.
"""

import asyncio
import contextlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
import textwrap
import zipfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.jobs import ROOT

pytestmark = pytest.mark.skipif(os.name != "posix", reason="a process becomes another one on POSIX systems only")

TIMEOUT = 60.0
RECORDER = """
import json, os, sys

def start(settings):
    line = json.dumps({"pid": os.getpid(), "program": sys.orig_argv[1:], "settings": repr(settings)})
    with open(os.environ["RECORD"], "a") as record:
        record.write(line + "\\n")
    exec(os.environ.get("AT_START", ""), globals())

try:
    import relay_agent.job
except ImportError:  # in a Python without it
    pass
else:
    relay_agent.job.start_debugging = start
"""


class Stage:
    """A directory with a job's files, and the record of who took part."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        (directory / "site").mkdir()
        self.write("site/sitecustomize.py", RECORDER)
        self.environ = {name: text for name, text in os.environ.items() if not name.startswith(("RELAY_", "PYTHON"))}
        self.environ |= {
            "RECORD": str(directory / "record"),
            "PYTHONPATH": os.pathsep.join([str(directory / "site"), str(ROOT)]),
        }

    def write(self, name: str, text: str, mode: int = 0o644) -> str:
        """Write a file, and return its path."""
        path = self.directory / name
        path.write_text(textwrap.dedent(text))
        path.chmod(mode)
        return str(path)

    @contextlib.asynccontextmanager
    async def start(
        self, *command: str, options: tuple[str, ...] = (), under_run: bool = True, **environ: str
    ) -> AsyncIterator[asyncio.subprocess.Process]:
        """Start a command, under `relay-agent run` or without."""
        # -E: a `sitecustomize` on PYTHONPATH is for the job; a Python that becomes it would only run it once more.
        run = (sys.executable, "-E", "-m", "relay_agent", "run", "--hc", "myhc", *options, "--")
        process = await asyncio.create_subprocess_exec(
            *(run if under_run else ()),
            *command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self.environ | environ,
            cwd=self.directory,
        )
        try:
            yield process
        finally:
            if process.returncode is None:
                process.kill()
            await process.communicate()

    async def run(self, *command: str, stdin: bytes = b"", **how: Any) -> tuple[int | None, bytes, str]:
        """Run a command to its end, and return status, stdout and stderr."""
        async with self.start(*command, **how) as process:
            out, err = await asyncio.wait_for(process.communicate(stdin), TIMEOUT)
            return process.returncode, out, err.decode()

    async def python(self, *arguments: str, **how: Any) -> tuple[int | None, list[str], str]:
        """Run a Python program to its end, and return its lines of stdout."""
        status, out, err = await self.run(sys.executable, *arguments, **how)
        return status, out.decode().splitlines(), err

    def record(self) -> list[dict[str, Any]]:
        """Return who took part, in the order of their coming."""
        path = self.directory / "record"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def programs(self) -> list[str]:
        """Return the names of the programs that took part."""
        return [Path(entry["program"][0]).name for entry in self.record()]


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


# The command is left alone:


@pytest.mark.parametrize("status", [0, 7, 255])
async def test_the_exit_status_is_the_command_s(stage: Stage, status: int):
    """Any of them."""
    assert (status, b"", "") == await stage.run("sh", "-c", f"exit {status}")


async def test_bytes_pass_through(stage: Stage):
    """Standard input and output are the command's own, whatever is in them."""
    data = bytes(range(256)) * 1000
    assert (0, data, "") == await stage.run("cat", stdin=data)


async def test_a_signal_reaches_the_command(stage: Stage):
    """It is the same process, so it ends by the signal that it was sent."""
    async with stage.start("sh", "-c", "echo $$; exec sleep 60") as process:
        assert process.stdout is not None
        assert f"{process.pid}\n".encode() == await asyncio.wait_for(process.stdout.readline(), TIMEOUT)
        process.send_signal(signal.SIGTERM)
        assert -signal.SIGTERM == await asyncio.wait_for(process.wait(), TIMEOUT)


@pytest.mark.parametrize("name", ["SIGPIPE", "SIGXFSZ", "SIGINT"])
async def test_signals_mean_to_the_command_what_they_always_mean(stage: Stage, name: str):
    """Python ignores some, and what is ignored would stay so in the command."""
    number = getattr(signal, name)
    assert (-number, b"", "") == await stage.run("sh", "-c", f"kill -{number:d} $$; echo survived")


@pytest.mark.parametrize(
    ("name", "content", "mode", "status", "sentence"),
    [
        ("./missing", None, 0, 127, "there is no command './missing'"),
        ("missing-command", None, 0, 127, "there is no command 'missing-command'"),
        (
            "./train.py",
            "print()",
            0o644,
            126,
            "'./train.py' cannot be started: Permission denied. hint: say: relay-agent",
        ),
        ("./broken", "#!/no/such/interpreter\n", 0o755, 127, "the interpreter that the first line of './broken' names"),
        ("./text", "no program\n", 0o755, 126, "'./text' cannot be started: Exec format error"),
    ],
)
async def test_a_command_that_cannot_be_started_is_told(
    stage: Stage, name: str, content: str | None, mode: int, status: int, sentence: str
):
    """With the statuses that a shell would have: 127 where there is none, 126 where it is no program."""
    if content is not None:
        stage.write(name, content, mode)
    found, out, err = await stage.run(name)
    assert (status, b"") == (found, out)
    assert sentence in err
    assert 1 == err.count("\n")


SHOW_STATE = """
    import os, sys
    print(sys.path, sys.argv, sys.flags, sorted(sys.modules["sitecustomize"].__dict__))
    print(sorted(set(sys.modules) - {"_relay_debug_programs"}))
"""


@pytest.mark.parametrize("options", [(), ("-S",), ("-I",), ("-E",), ("-s",), ("-P",)])
async def test_a_process_that_takes_no_part_is_as_it_would_be(stage: Stage, options: tuple[str, ...]):
    """Same path, same modules but one, same `sitecustomize`, and not a word, in every mode of Python."""
    if options == ("-P",) and sys.version_info < (3, 11):
        pytest.skip("-P came with Python 3.11")
    code = textwrap.dedent(SHOW_STATE).replace('sys.modules["sitecustomize"]', 'sys.modules.get("sitecustomize", os)')
    if options == ("-S",):  # nobody has come by to take our directory away
        code = code.replace("sys.path", "[entry for entry in sys.path if 'inject' not in entry]")
    usual = await stage.python(*options, "-c", code, under_run=False)
    assert usual == await stage.python(*options, "-c", code)
    assert [] == stage.record()


# Existing sitecustomize:


async def test_an_existing_sitecustomize_runs_as_it_would(stage: Stage):
    """Once, before the program takes part, and it is the module that everybody sees."""
    stage.write("site/sitecustomize.py", RECORDER + "\nprint('mine', __name__, __file__)\nvalue = 7\n")
    program = stage.write("train.py", "import sitecustomize; print(sitecustomize.value)")
    mine = f"mine sitecustomize {stage.directory / 'site' / 'sitecustomize.py'}"
    assert (0, [mine, "7"], "") == await stage.python(program)
    assert ["train.py"] == stage.programs()


@pytest.mark.parametrize("statement", ["1 / 0", "import no_such_module", "raise ImportError(name='sitecustomize')"])
async def test_an_error_in_an_existing_sitecustomize_is_reported_as_ever(stage: Stage, statement: str):
    """`site` says the same as without us, and the program takes part all the same."""
    stage.write("site/sitecustomize.py", f"{RECORDER}\n{statement}\n")
    program = stage.write("train.py", "import sys; print('ran', 'sitecustomize' in sys.modules)")
    usual = await stage.python(program, under_run=False)
    status, out, err = await stage.python(program)
    assert (0, usual[2]) == (status, err)
    assert out[0].startswith("ran")
    assert ["train.py"] == stage.programs()


async def test_without_an_existing_sitecustomize_nothing_is_missing(stage: Stage):
    """The path to ours is gone before the program begins."""
    program = stage.write("train.py", "import sys; print([entry for entry in sys.path if 'inject' in entry])")
    (stage.directory / "site" / "sitecustomize.py").rename(stage.directory / "site" / "usercustomize.py")
    status, out, _ = await stage.python(program, RELAY_DEBUG="on-demand", RELAY_DEBUG_PORT="x", under_run=False)
    assert (0, ["[]"]) == (status, out)


# Who takes part:


async def test_a_program_takes_part_before_it_begins(stage: Stage):
    """It is told the settings; its own code sees that it is registered."""
    program = stage.write("train.py", "import os; print(os.environ['RELAY_DEBUG_REGISTERED'].split()[0], os.getpid())")
    status, out, err = await stage.python(program, options=("--port", "6000", "--debug-ranks", "all"))
    (entry,) = stage.record()
    assert (0, [f"{entry['pid']} {entry['pid']}"], "") == (status, out, err)
    assert "<DebugSettings 'myhc' port 6000 ranks all>" == entry["settings"]


WAYS = ["train.py", "./train.py", "train", "-m train", "-m package.train", "-u -m package", "package", "app.zip"]
AT_START = """
import threading

def arm():
    import debugpy
    debugpy.listen(("127.0.0.1", 0))
    os.write(1, b"armed\\n")

thread = threading.Thread(target=arm, daemon=True)
thread.start()
thread.join()
"""
SHOW_IMPORT_SYSTEM = """
    import runpy, sys
    print([type(entry).__module__ for entry in (*sys.path_hooks, *sys.meta_path)])
    print([vars(runpy)[name].__module__ for name in vars(runpy) if name.startswith("_get")])
"""


def write_programs(stage: Stage, code: str) -> None:
    """Write what is run in each of the WAYS."""
    (stage.directory / "package").mkdir()
    for name in "train", "train.py", "package/__init__.py", "package/train.py", "package/__main__.py":
        stage.write(name, "" if "init" in name else code)
    with zipfile.ZipFile(stage.directory / "app.zip", "w") as archive:
        archive.writestr("__main__.py", textwrap.dedent(code))


@pytest.mark.parametrize("line", WAYS)
async def test_every_way_to_run_a_program_takes_part_once(stage: Stage, line: str):
    """And leaves the import system as it was."""
    write_programs(stage, SHOW_IMPORT_SYSTEM)
    usual = await stage.python(*line.split(), under_run=False)
    assert usual == await stage.python(*line.split())
    assert 1 == len(stage.record())


@pytest.mark.parametrize("line", WAYS)
async def test_a_debugger_can_come_before_the_program_begins(stage: Stage, line: str):
    """While the main thread waits, another one starts debugpy, which imports `site` among others."""
    write_programs(stage, "print('ran')")
    environ = {"AT_START": AT_START, "PYDEVD_DISABLE_FILE_VALIDATION": "1"}
    assert (0, ["armed", "ran"], "") == await stage.python(*line.split(), **environ)


async def test_settings_by_hand_do_the_same(stage: Stage):
    """RELAY_DEBUG=1 and the directory on PYTHONPATH are all that `relay-agent run` adds."""
    program = stage.write("train.py", "")
    inject = str(ROOT / "relay_agent" / "inject")
    path = os.pathsep.join([inject, stage.environ["PYTHONPATH"]])
    assert (0, [], "") == await stage.python(program, under_run=False, PYTHONPATH=path, RELAY_DEBUG="1")
    assert ["train.py"] == stage.programs()


@pytest.mark.parametrize("mode", ["off", "0"])
async def test_switched_off_nobody_takes_part(stage: Stage, mode: str):
    """The run is an ordinary one."""
    assert (0, [], "") == await stage.python(stage.write("train.py", ""), RELAY_DEBUG=mode)
    assert [] == stage.record()


TREE = """
    import multiprocessing, os, subprocess, sys

    def work(_):
        return os.getpid()

    if __name__ == "__main__":
        for method in "spawn", "forkserver", "fork":
            with multiprocessing.get_context(method).Pool(2) as pool:
                assert os.getpid() not in pool.map(work, range(4))
        subprocess.run([sys.executable, "eval.py"], check=True)
        subprocess.run([sys.executable, "-m", "json.tool", "--help"], check=True, stdout=subprocess.DEVNULL)
        os.environ |= {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1"}
        subprocess.run([sys.executable, "rank.py"], check=True)
"""


async def test_of_a_tree_of_processes_only_programs_take_part(stage: Stage):
    """Workers of every kind and scripts that a program calls do not; a rank that it starts does."""
    stage.write("eval.py", "")
    stage.write("rank.py", "")
    assert (0, [], "") == await stage.python("-W", "ignore", stage.write("train.py", TREE))
    assert ["-W", "rank.py"] == stage.programs()
    assert 2 == len({entry["pid"] for entry in stage.record()})


async def test_a_program_that_starts_itself_anew_takes_part_again(stage: Stage):
    """After exec the process is the same, and what it had registered with is gone."""
    program = """
        import os, sys
        if len(sys.argv) == 1:
            os.execv(sys.executable, [sys.executable, sys.argv[0], "again"])
    """
    assert (0, [], "") == await stage.python(stage.write("train.py", program))
    first, second = stage.record()
    assert first["pid"] == second["pid"]
    assert "again" == second["program"][-1]


TRAIN = """
    import os
    import torch
    from torch.utils.data import DataLoader

    if __name__ == "__main__":
        torch.distributed.init_process_group("gloo")
        for method in "spawn", "fork":
            loader = DataLoader(list(range(4)), num_workers=2, multiprocessing_context=method)
            total = sum(batch.sum() for batch in loader)
            torch.distributed.all_reduce(total)
        os.write(1, f"{os.environ['RANK']} {os.getpid()} {int(total)}\\n".encode())
        torch.distributed.destroy_process_group()
"""


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch: make extras")
@pytest.mark.parametrize("timeouts", [(), ("--debug-timeouts",)])
async def test_of_a_torchrun_job_exactly_the_ranks_take_part(stage: Stage, timeouts: tuple[str, ...]):
    """Neither torchrun nor the workers of their DataLoaders."""
    torchrun = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    program = stage.write("train.py", TRAIN)
    status, out, _ = await stage.python(*torchrun, program, options=timeouts, OMP_NUM_THREADS="1")
    assert 0 == status
    assert ["0", "1"] == sorted(line.split()[0] for line in out)
    assert {"12"} == {line.split()[2] for line in out}
    assert sorted(int(line.split()[1]) for line in out) == sorted(entry["pid"] for entry in stage.record())


SPAWN = """
    import multiprocessing, sys

    def finders(_):
        return [type(finder).__module__ for finder in sys.meta_path if "relay" in type(finder).__module__]

    if __name__ == "__main__":
        print(finders(0), multiprocessing.get_context("spawn").Pool(1).map(finders, [0]))
"""


async def test_watchdogs_are_raised_in_children_too(stage: Stage):
    """A spawned child may be a rank whose peer is held; it is asked for by an option, and costs nothing otherwise."""
    program = stage.write("train.py", SPAWN)
    assert (0, ["[] [[]]"], "") == await stage.python(program)
    hook = "['relay_agent.watchdogs']"
    assert (0, [f"{hook} [{hook}]"], "") == await stage.python(program, options=("--debug-timeouts",))


# What goes wrong:


async def test_a_broken_setting_is_told_and_never_breaks_the_job(stage: Stage):
    """The variables may be set by hand."""
    inject = str(ROOT / "relay_agent" / "inject")
    path = os.pathsep.join([inject, stage.environ["PYTHONPATH"]])
    environ = {"PYTHONPATH": path, "RELAY_DEBUG": "1", "RELAY_DEBUG_PORT": "x"}
    status, out, err = await stage.python(stage.write("train.py", "print('ran')"), under_run=False, **environ)
    assert (0, ["ran"]) == (status, out)
    expected = (
        "relay-agent: error: RELAY_DEBUG_PORT 'x' is not a port. hint: use a number from 1 to 65535, such as 5678\n"
        "relay-agent: the job goes on without a debugger\n"
    )
    assert expected == err
    assert [] == stage.record()


async def test_a_python_without_relay_debug_says_so_in_one_line(stage: Stage):
    """A tool of the job may have an interpreter of its own."""
    inject = stage.directory / "inject"
    inject.mkdir()
    for name in "sitecustomize.py", "_relay_debug_programs.py":
        (inject / name).write_bytes((ROOT / "relay_agent" / "inject" / name).read_bytes())
    stage.write("site/relay_agent.py", "raise ImportError('not here')")
    path = os.pathsep.join([str(inject), str(stage.directory / "site")])
    program = stage.write("train.py", "print('ran')")
    status, out, err = await stage.python(program, under_run=False, PYTHONPATH=path, RELAY_DEBUG="1")
    assert (0, ["ran"]) == (status, out)
    assert (
        f"relay-agent: {sys.executable} is without relay-debug, so this process cannot be debugged: not here\n" == err
    )


@pytest.mark.parametrize(
    ("at_start", "status", "last_line"),
    [
        ("raise SystemExit(14)", 14, ""),
        ("raise SystemExit", 0, ""),
        ("raise SystemExit('nobody came')", 1, "relay-agent: nobody came"),
        ("raise KeyboardInterrupt", -signal.SIGINT, ""),
    ],
)
async def test_a_process_that_is_to_end_at_its_start_ends_cleanly(
    stage: Stage, at_start: str, status: int, last_line: str
):
    """Its program does not begin, and Python does not call it a fatal error."""
    program = stage.write("train.py", "print('ran')")
    found, out, err = await stage.python(program, AT_START=at_start)
    assert (status, [], last_line) == (found, out, err.strip())


async def test_an_error_at_the_start_is_told_and_the_job_goes_on(stage: Stage):
    """Whatever the debugger's side does wrong."""
    status, out, err = await stage.python(stage.write("train.py", "print('ran')"), AT_START="1 / 0")
    assert (0, ["ran"]) == (status, out)
    assert "relay-agent: error: ZeroDivisionError: division by zero\n" in err
