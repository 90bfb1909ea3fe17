"""Facts about which processes of a `relay-agent run` job take part in its debugging, and when."""

import importlib.util
import os
import textwrap
import zipfile
from pathlib import Path

import pytest

from tests.support.jobs.processes import ROOT
from tests.support.jobs.run_stage import Stage

pytestmark = pytest.mark.skipif(os.name != "posix", reason="a process becomes another one on POSIX systems only")


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


async def test_a_program_takes_part_before_it_begins(stage: Stage):
    """It receives the settings; its own code sees that it is registered."""
    program = stage.write("train.py", "import os; print(os.environ['RELAY_DEBUG_REGISTERED'].split()[0], os.getpid())")
    status, out, err = await stage.python(program, options=("--port", "6000", "--debug-ranks", "all"))
    (entry,) = stage.record()
    assert (0, [f"{entry['pid']} {entry['pid']}"], "") == (status, out, err)
    assert ["myhc", 6000, True] == entry["settings"]


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
            loader = DataLoader(list(range(4)), num_workers=1, multiprocessing_context=method)
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
    hook = "['relay_agent.job.import_hook']"
    assert (0, [f"{hook} [{hook}]"], "") == await stage.python(program, options=("--debug-timeouts",))
