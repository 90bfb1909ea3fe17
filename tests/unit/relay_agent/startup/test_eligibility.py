"""Which processes of a job register as targets."""

import multiprocessing.resource_tracker
import multiprocessing.spawn
import subprocess
import sys

import pytest

from relay_agent.settings.environment import register_environment
from relay_agent.settings.ranks import identify
from relay_agent.startup.eligibility import should_register

ON = {"RELAY_DEBUG": "1"}
TORCHRUN = {"TORCHELASTIC_RUN_ID": "j", "RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1"}


def registration(environ: dict[str, str]) -> dict[str, str]:
    """What process 100 sets when it registers port 5678."""
    return register_environment(identify(environ), 100, 5678)


def command(line: str) -> list[str]:
    return ["/usr/bin/python3", *line.split()]


@pytest.mark.parametrize(
    "line",
    [
        "train.py",
        "-u train.py --lr 1",
        "-X dev -W error -Bu train.py",
        "-Wignore train.py -c config",
        "-m train",
        "-um my.train --ray",
        "-m pdb train.py",
        "-m cProfile -o out train.py",
        "-m pytest tests",
        "--check-hash-based-pycs default train.py",
        "/opt/env/bin/llamafactory-cli train x.yaml",
        "torchrun.py",
        "deepspeed.py",
        "pip/train.py",
        "app.pyz",
        "-- train.py",
    ],
)
def test_a_program_registers(line: str):
    """A script, a module, an installed command; options of Python and arguments of the program do not matter."""
    assert should_register(ON, command(line), 100) is None


@pytest.mark.parametrize(
    "line",
    [
        "/opt/env/bin/torchrun --nproc-per-node 2 train.py",
        "-m torch.distributed.run train.py",
        "-m torch.distributed.launch train.py",
        "-mtorch.distributed.run train.py",
        "/x/lib/python3.11/site-packages/torch/distributed/run.py train.py",
        "/opt/env/bin/accelerate launch train.py",
        "-m accelerate.commands.launch train.py",
        "/opt/env/bin/deepspeed train.py",
        "-u -m deepspeed.launcher.launch --world_info=x train.py",
        "/opt/env/bin/horovodrun -np 2 python train.py",
        "/opt/env/bin/ray start --head",
        "/opt/env/bin/mpiexec -n 2 python train.py",
        "/opt/env/bin/dotenv run -- python train.py",
        "/opt/env/bin/opentelemetry-instrument python train.py",
        "/x/site-packages/dotenv/__main__.py run -- python train.py",
        "/opt/env/bin/pip3.11 install x",
        "-m pip install x",
        "-m ensurepip",
        "-m venv x",
        "-m http.server",
        "-m json.tool x",
        "-m debugpy --listen 5678 train.py",
        "/x/site-packages/debugpy/adapter --for-server 1",
        "-m relay_agent node-agent",
        "/opt/env/bin/relay-client stacks",
        "/x/site-packages/torch/_inductor/compile_worker/__main__.py --pickler=x",
        "/x/site-packages/ray/_private/workers/default_worker.py",
        "-c pass",
        "-Ic pass",
        "-",
        "-i",
        "",
        "--version",
    ],
)
def test_a_helper_does_not_register(line: str):
    """Launchers, package managers, debuggers, and what has no file to set a breakpoint in."""
    assert should_register(ON, command(line), 100)


def test_children_of_multiprocessing_do_not_register():
    """Neither those that run a function nor its resource tracker, with the very command lines it uses."""
    spawned = [sys.executable, *multiprocessing.spawn.get_command_line(pipe_handle=3)[1:]]
    tracker = ["python", "-c", "from multiprocessing.resource_tracker import main;main(4)"]
    server = ["python", "-c", "from multiprocessing.forkserver import main; main(5, 6, ['__main__'], **{})"]
    loky = ["python", "-c", "from joblib.externals.loky.backend.resource_tracker import main; main(7, False)"]
    for line in spawned, tracker, server, loky:
        assert "it is a multiprocessing child process" == should_register(ON, line, 100)


def test_the_real_interpreter_agrees_about_its_command_line():
    """Options of Python are recognized as Python does."""
    line = [
        sys.executable,
        "-X",
        "utf8",
        "-W",
        "ignore",
        "-Bu",
        "-c",
        "import sys; print(sys.argv, sys.orig_argv)",
        "-m",
    ]
    out = subprocess.run(line, capture_output=True, text=True, check=True).stdout
    assert out == f"['-c', '-m'] {line}\n"
    assert "code given with -c" in str(should_register(ON, line, 100))


def test_a_process_registers_where_debugging_is_on_only():
    """The variables may be set although debugging is off."""
    assert "debugging is off" == should_register({"RELAY_DEBUG": "off"}, command("train.py"), 100)


def test_what_a_registered_process_starts_does_not_register():
    """A script that a rank runs has the rank's variables; so has one without any launcher."""
    for environ in ON, ON | TORCHRUN:
        registered = environ | registration(environ)
        assert "it was started by process 100" in str(should_register(registered, command("eval.py"), 101))


def test_a_process_that_lost_its_rank_does_not_register():
    """Its variables were taken away, not its parent."""
    registered = ON | registration(ON | TORCHRUN)
    assert should_register(registered, command("eval.py"), 101)


def test_a_rank_of_its_own_registers_whoever_started_it():
    """A program that starts ranks itself, as Lightning does, is registered before them."""
    registered = ON | registration(ON)
    assert should_register(registered | TORCHRUN, command("train.py"), 101) is None
    other = ON | registration(ON | TORCHRUN | {"RANK": "0", "LOCAL_RANK": "0"})
    assert should_register(other | TORCHRUN, command("train.py"), 101) is None


def test_a_process_that_replaces_itself_registers_again():
    """After exec it has the same pid, and nothing of what it had registered with."""
    registered = ON | registration(ON)
    assert should_register(registered, command("train.py"), 100) is None


def test_a_file_of_a_library_registers_as_a_rank_only():
    """A launcher may be given an installed script; without one it is some library's helper."""
    line = command("-u /x/lib/python3.11/site-packages/llamafactory/launcher.py train.yaml")
    assert should_register(ON | TORCHRUN, line, 100) is None
    assert "its file belongs to a library, and no launcher gave it a rank" == should_register(ON, line, 100)
