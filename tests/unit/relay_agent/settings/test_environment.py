"""Settings in environment variables, and which processes of a job they concern."""

import multiprocessing.resource_tracker
import multiprocessing.spawn
import subprocess
import sys

import pytest

from relay_agent.settings.environment import from_environment, register_environment, should_register
from relay_agent.settings.model import DebugSettings
from relay_core.errors import UsageError

ON = {"RELAY_DEBUG": "1"}
TORCHRUN = {"TORCHELASTIC_RUN_ID": "j", "RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1"}


@pytest.mark.parametrize("mode", ["", "0", "off", "False", "no", "none", " OFF "])
def test_debugging_is_off_by_many_words(mode: str):
    """Nothing else is looked at then, however wrong it is."""
    assert from_environment({"RELAY_DEBUG": mode, "RELAY_DEBUG_PORT": "x"}) is None


def test_one_variable_is_enough():
    """The others have defaults, those of the options; credentials are where they always are."""
    assert DebugSettings() == from_environment(ON)
    assert DebugSettings() == from_environment({"RELAY_DEBUG": "wait", "RELAY_DEBUG_PORT": ""})


def test_on_demand_means_that_nobody_waits():
    """Whatever ranks are named besides."""
    settings = from_environment({"RELAY_DEBUG": "on-demand", "RELAY_DEBUG_RANKS": "all"})
    assert settings is not None
    assert "none" == settings.ranks


def test_every_setting_has_its_variable():
    """Durations may have units, lists have commas, flags are text."""
    environ = ON | {
        "RELAY_DEBUG_HC": "myhc",
        "RELAY_DEBUG_NAMESPACE": "contoso",
        "RELAY_DEBUG_CA_FILE": "/ca.pem",
        "RELAY_DEBUG_PORT": "6000",
        "RELAY_DEBUG_RANKS": "3,0-1",
        "RELAY_DEBUG_WAIT": "10m",
        "RELAY_DEBUG_ON_TIMEOUT": "abort",
        "RELAY_DEBUG_ON_CRASH": "true",
        "RELAY_DEBUG_HOLD": "2h",
        "RELAY_DEBUG_TIMEOUTS": "3600",
        "RELAY_DEBUG_FORWARD": "6006, 8888",
        "RELAY_DEBUG_FOLLOW_CHILDREN": "no",
    }
    expected = DebugSettings(
        access={"hc": "myhc", "namespace": "contoso", "ca_file": "/ca.pem"},
        port=6000,
        ranks="0-1,3",
        wait=600.0,
        abort_on_timeout=True,
        on_crash=True,
        hold=7200.0,
        timeouts=3600.0,
        forwards=(6006, 8888),
        follow_children=False,
    )
    assert expected == from_environment(environ)


def test_the_old_package_can_name_the_hybrid_connection():
    """AZRELAY_CONNECTION_NAME counts where RELAY_DEBUG_HC is absent."""
    settings = from_environment(ON | {"AZRELAY_CONNECTION_NAME": "old"})
    assert settings is not None
    assert {"hc": "old"} == settings.access


@pytest.mark.parametrize(
    ("variable", "text", "sentence"),
    [
        ("RELAY_DEBUG", "perhaps", "RELAY_DEBUG 'perhaps' is not a mode"),
        ("RELAY_DEBUG_PORT", "70000", "RELAY_DEBUG_PORT '70000' is not a port"),
        ("RELAY_DEBUG_PORT", "5678,5679", "RELAY_DEBUG_PORT names 2 ports"),
        ("RELAY_DEBUG_RANKS", "last", "RELAY_DEBUG_RANKS 'last' does not name ranks"),
        ("RELAY_DEBUG_WAIT", "soon", "RELAY_DEBUG_WAIT 'soon' is not a number of seconds"),
        ("RELAY_DEBUG_ON_TIMEOUT", "kill", "RELAY_DEBUG_ON_TIMEOUT 'kill' is neither continue nor abort"),
        ("RELAY_DEBUG_ON_CRASH", "maybe", "RELAY_DEBUG_ON_CRASH 'maybe' is neither true nor false"),
        ("RELAY_DEBUG_FORWARD", "6006,web", "RELAY_DEBUG_FORWARD 'web' is not a port"),
    ],
)
def test_a_value_that_makes_no_sense_is_named(variable: str, text: str, sentence: str):
    """By its variable, for that is where the user wrote it."""
    with pytest.raises(UsageError) as raised:
        from_environment(ON | {variable: text})
    assert sentence == raised.value.sentence


def test_a_value_that_came_from_an_option_is_named_by_that():
    """`relay-agent run` says which option sets which variable."""
    with pytest.raises(UsageError) as raised:
        from_environment(ON | {"RELAY_DEBUG_RANKS": "x"}, options={"RELAY_DEBUG_RANKS": "--ranks"})
    assert "--ranks 'x' does not name ranks" == raised.value.sentence


def test_watchdogs_are_not_raised_beyond_what_poll_can_count():
    """A month in milliseconds is more than an int holds."""
    settings = from_environment(ON | {"RELAY_DEBUG_TIMEOUTS": "720h"})
    assert settings is not None
    assert settings.timeouts is not None
    assert settings.timeouts * 1000 < 2**31


PAI = ON | {
    "PAI_CURRENT_TASK_ROLE_NAME": "train",
    "PAI_PORT_LIST_train_0_debug": "20111,20112",
    "PAI_PORT_LIST_train_1_debug": "20333",
    "DEBUG_PORT_NAME": "debug",
    "DEBUG_TIMEOUT": "60",
}


def test_an_openpai_job_is_debugged_as_its_own_tool_was_told():
    """The port reserved for task 0 is rank 0's, in every task."""
    settings = from_environment(PAI)
    assert settings is not None
    assert (20111, 60.0) == (settings.port, settings.wait)


def test_our_own_variables_come_before_those_of_openpai():
    """And outside of OpenPAI a variable called DEBUG_TIMEOUT is somebody else's."""
    settings = from_environment(PAI | {"RELAY_DEBUG_PORT": "5678", "RELAY_DEBUG_WAIT": "0"})
    assert settings is not None
    assert (5678, 0.0) == (settings.port, settings.wait)
    assert DebugSettings() == from_environment(ON | {"DEBUG_TIMEOUT": "60", "DEBUG_PORT_NAME": "debug"})


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
        "/opt/env/bin/pip3.11 install x",
        "-m pip install x",
        "-m ensurepip",
        "-m venv x",
        "-m http.server",
        "-m json.tool x",
        "-m debugpy --listen 5678 train.py",
        "/x/site-packages/debugpy/adapter --for-server 1",
        "-m relay_agent attend",
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
        assert "it is a child of multiprocessing" == should_register(ON, line, 100)


def test_the_real_interpreter_agrees_about_its_command_line():
    """What Python takes for its own options is what we take for them."""
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
    assert "a line of code" in str(should_register(ON, line, 100))


def test_a_process_registers_where_debugging_is_on_only():
    """The variables may be there although somebody has switched it off."""
    assert "debugging is off" == should_register({"RELAY_DEBUG": "off"}, command("train.py"), 100)


def test_what_a_registered_process_starts_does_not_register():
    """A script that a rank runs has the rank's variables; so has one without any launcher."""
    for environ in ON, ON | TORCHRUN:
        registered = environ | register_environment(environ, 100)
        assert "it was started by process 100" in str(should_register(registered, command("eval.py"), 101))


def test_a_process_that_lost_its_rank_does_not_register():
    """Its variables were taken away, not its parent."""
    registered = ON | register_environment(ON | TORCHRUN, 100)
    assert should_register(registered, command("eval.py"), 101)


def test_a_rank_of_its_own_registers_whoever_started_it():
    """A program that starts ranks by itself, as Lightning's does, is registered before them."""
    registered = ON | register_environment(ON, 100)
    assert should_register(registered | TORCHRUN, command("train.py"), 101) is None
    other = ON | register_environment(ON | TORCHRUN | {"RANK": "0", "LOCAL_RANK": "0"}, 100)
    assert should_register(other | TORCHRUN, command("train.py"), 101) is None


def test_a_process_that_replaces_itself_registers_again():
    """After exec it has the same pid, and nothing of what it had registered with."""
    registered = ON | register_environment(ON, 100)
    assert should_register(registered, command("train.py"), 100) is None


def test_a_file_of_a_library_registers_as_a_rank_only():
    """A launcher may be given an installed script; without one it is some library's helper."""
    line = command("-u /x/lib/python3.11/site-packages/llamafactory/launcher.py train.yaml")
    assert should_register(ON | TORCHRUN, line, 100) is None
    assert "its file belongs to a library, and no launcher gave it a rank" == should_register(ON, line, 100)
