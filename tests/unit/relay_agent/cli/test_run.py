"""The environment that `relay-agent run` gives to a command."""

import argparse
import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from relay_agent import inject
from relay_agent.cli.run import add_parser, job_environment, run
from relay_agent.settings.environment import from_environment
from relay_agent.settings.model import DebugSettings, parse_ranks
from relay_core.access_settings import AccessSettings
from relay_core.errors import UsageError
from tests.support.data.debug_settings import ALL_SET
from tests.support.machine import secrets

INJECTED = str(Path(inject.__file__).parent)


def parse(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_parser(parser.add_subparsers())
    return parser.parse_args(["run", *arguments])


def environment(*arguments: str, environ: Mapping[str, str] | None = None) -> dict[str, str]:
    return job_environment(parse("--hc", "myhc", *arguments), environ or {})


def changes(*arguments: str, environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return what is added to the environment besides what every run adds."""
    before = dict(environ or {})
    after = environment(*arguments, environ=before)
    after.pop("PYTHONPATH")
    return {name: text for name, text in after.items() if before.get(name) != text}


ALWAYS = {"RELAY_DEBUG": "wait", "RELAY_DEBUG_HC": "myhc"}


@pytest.mark.parametrize(
    ("line", "program"),
    [
        ("-- torchrun --wait 5 train.py", ["torchrun", "--wait", "5", "train.py"]),
        ("torchrun --wait 5 train.py", ["torchrun", "--wait", "5", "train.py"]),
        ("--wait 1 -- python -c pass --", ["python", "-c", "pass", "--"]),
        ("--debug-timeouts -- python -m x", ["python", "-m", "x"]),
        ("--debug-on-crash python -m x", ["python", "-m", "x"]),
        ("--debug-on-crash True --wait 1 python -m x", ["python", "-m", "x"]),
        ("--debug-on-crash false -- true --debug-on-crash true", ["true", "--debug-on-crash", "true"]),
        ("-- -- x", ["--", "x"]),
    ],
)
def test_what_follows_the_options_is_the_command(line: str, program: list[str], monkeypatch: pytest.MonkeyPatch):
    """Its own options are not ours, with or without the two dashes."""
    executed: list[list[str]] = []

    def execute(file: str, arguments: list[str], environ: dict[str, str]) -> None:
        executed.append(arguments)
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "execvpe", execute)
    monkeypatch.setattr("signal.signal", lambda *_: None)
    with pytest.raises(SystemExit) as ended:
        run(parse("--hc", "myhc", *line.split()))
    assert ([program], 126) == (executed, ended.value.code)


def test_an_ordinary_run_needs_few_variables():
    """Defaults are not written down."""
    assert ALWAYS == changes()
    assert DebugSettings(AccessSettings(hc="myhc")) == from_environment(environment())


def test_every_option_has_its_variable():
    """The processes of the job find there what the command line sets."""
    line = (
        "--port 6000 --debug-ranks 0,3-5 --wait 10m --on-timeout abort --debug-on-crash --hold 2h --debug-timeouts 3600"
        " --forward 6006 --forward 8888 --follow-children --namespace contoso --key-vault v --identity managed"
        " --connection-string-secret c --tunnel-key-secret s"
    )
    expected = ALL_SET._replace(
        access=AccessSettings(
            hc="myhc",
            connection_string_secret="c",
            key_vault="v",
            namespace="contoso",
            identity="managed",
            tunnel_key_secret="s",
        ),
        values=True,  # for which it has no option
    )
    assert expected == from_environment(environment(*line.split()))


def test_options_have_the_names_of_a_script():
    """Each option that a script accepts with the prefix `--debug-` is also accepted here with that name."""
    short = ("--port", "6000", "--wait", "10m", "--on-timeout", "abort", "--hold", "1h", "--follow-children")
    given = tuple(text.replace("--", "--debug-") for text in short)
    assert environment(*short) == environment(*given)
    assert from_environment(environment(*given)).abort_on_timeout


def test_an_option_comes_before_its_variable():
    """A variable that no option contradicts stays."""
    environ = {"RELAY_DEBUG_PORT": "6000", "RELAY_DEBUG_WAIT": "5", "RELAY_DEBUG_HC": "other"}
    settings = from_environment(environment("--port", "7000", environ=environ))
    assert settings is not None
    assert (AccessSettings(hc="myhc"), 7000, 5.0) == (settings.access, settings.port, settings.wait)


def test_files_are_found_from_every_directory():
    """The job may change its own."""
    expected = {"RELAY_DEBUG_CONNECTION_STRING_FILE": str(Path("secret").absolute()), **ALWAYS}
    assert expected == changes("--connection-string-file", "secret")


def test_a_connection_string_is_in_its_own_variable_only():
    """It is in the environment, as everywhere, and in no setting."""
    text = f"Endpoint=sb://x.servicebus.windows.net/;SharedAccessKeyName=a;SharedAccessKey={secrets.new_key()}"
    assert {"RELAY_CONNECTION_STRING": text, **ALWAYS} == changes("--connection-string", text)


def test_a_connection_string_may_name_the_hybrid_connection():
    """The processes of the job do not read it; they get the name."""
    key = secrets.new_key()
    text = f"Endpoint=sb://x.servicebus.windows.net/;SharedAccessKeyName=a;SharedAccessKey={key};EntityPath=inside"
    job = job_environment(parse("--", "true"), {"RELAY_CONNECTION_STRING": text})
    assert "inside" == job["RELAY_DEBUG_HC"]
    secrets.check(*(value for name, value in job.items() if name != "RELAY_CONNECTION_STRING"))


def test_a_secret_may_name_the_hybrid_connection():
    """The agent reads the secret, and the name in it; an option or a variable names the secret."""
    assert "RELAY_DEBUG_HC" not in job_environment(parse("--connection-string-secret", "alice", "--", "true"), {})
    assert "RELAY_DEBUG_HC" not in job_environment(parse("--", "true"), {"RELAY_CONNECTION_STRING_SECRET": "alice"})


@pytest.mark.parametrize(
    ("arguments", "environ"),
    [
        ((), {}),
        (("--namespace", "contoso"), {}),
        (("--namespace", "contoso"), {"RELAY_CONNECTION_STRING_SECRET": "alice"}),
        ((), {"RELAY_CONNECTION_STRING": "nonsense"}),
    ],
)
def test_a_hybrid_connection_without_a_name_is_an_error(arguments: tuple[str, ...], environ: dict[str, str]):
    """Before the job starts, for a debug run without it makes no sense."""
    with pytest.raises(UsageError, match="no hybrid connection given"):
        job_environment(parse(*arguments, "--", "true"), environ)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--port", "x"), "--port: invalid port: 'x'"),
        (("--debug-port", "x"), "--debug-port: invalid port: 'x'"),
        (("--debug-ranks", "x"), "--debug-ranks: invalid list of ranks: 'x'"),
        (("--wait", "x"), "--wait: invalid duration: 'x'"),
        (("--debug-wait=x",), "--debug-wait: invalid duration: 'x'"),
        (("--on-timeout", "x"), "--on-timeout: invalid action: 'x'"),
        (("--forward", "0"), "--forward: invalid port: '0'"),
    ],
)
def test_an_option_that_makes_no_sense_is_an_error(arguments: tuple[str, ...], sentence: str):
    """It is named as it was typed."""
    with pytest.raises(UsageError) as raised:
        environment(*arguments)
    assert sentence == raised.value.sentence


@pytest.mark.parametrize("mode", ["off", "0", "false"])
def test_debugging_can_be_switched_off_from_outside(mode: str):
    """RELAY_DEBUG=off makes it an ordinary run, even one whose options are wrong."""
    environ = {"RELAY_DEBUG": mode, "PYTHONPATH": "/x"}
    assert environ == environment("--port", "x", environ=environ)


def test_on_demand_can_be_asked_for_from_outside():
    """Unless an option names the ranks that wait."""
    on_demand = from_environment(environment(environ={"RELAY_DEBUG": "on-demand"}))
    waiting = from_environment(environment("--debug-ranks", "all", environ={"RELAY_DEBUG": "on-demand"}))
    assert on_demand is not None
    assert waiting is not None
    assert (parse_ranks("none"), parse_ranks("all")) == (on_demand.ranks, waiting.ranks)


def test_watchdogs_are_raised_for_the_whole_tree():
    """Their variables are there for processes that are not Python, too."""
    added = changes("--debug-timeouts", "--", "true", environ={"DEEPSPEED_TIMEOUT": "9999"})
    assert ("86400", "86400") == (added["RELAY_DEBUG_TIMEOUTS"], added["TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC"])
    assert "DEEPSPEED_TIMEOUT" not in added


def test_our_directory_comes_first_on_the_path():
    """And everything else stays as it is."""
    assert f"{INJECTED}:/x" == environment(environ={"PYTHONPATH": "/x"})["PYTHONPATH"]


def test_a_run_within_a_run_is_one_of_its_own():
    """Its processes are not the helpers of the process that started it."""
    assert "RELAY_DEBUG_REGISTERED" not in environment(environ={"RELAY_DEBUG_REGISTERED": "1 single"})


@pytest.mark.parametrize(("value", "text"), [([], "true"), (["true"], "true"), (["False"], "False")])
def test_the_value_of_a_flag(value: list[str], text: str):
    """A flag may have a value, as on a job's own command line; the options behind it count too."""
    expected = {"RELAY_DEBUG_ON_CRASH": text, "RELAY_DEBUG_FOLLOW_CHILDREN": "true"}
    found = changes("--debug-on-crash", *value, "--debug-follow-children", "--", "python", "train.py")
    assert {**ALWAYS, **expected} == found


def test_a_command_is_needed():
    """An empty line is a mistake."""
    with pytest.raises(UsageError, match="no command given"):
        run(parse("--hc", "myhc", "--"))


class Executed(Exception):
    """Raised instead of executing a command, which does not return."""


@pytest.fixture
def executed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[list[str]]:
    """The commands that were executed, in a directory with the script `train.py` and the directory `package`."""
    commands: list[list[str]] = []

    def execute(_file: str, arguments: list[str], _environ: dict[str, str]) -> None:
        commands.append(arguments)
        raise Executed

    monkeypatch.setattr(os, "execvpe", execute)
    monkeypatch.setattr("signal.signal", lambda *_: None)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RELAY_DEBUG", raising=False)
    (tmp_path / "train.py").touch()
    (tmp_path / "package").mkdir()
    return commands


@pytest.mark.parametrize(
    "line",
    [
        "python nofile.py",
        "python -W nofile.py train.py nofile.py",
        "python package",
        "python -",
        "python -m nofile.py",
        "python -c nofile.py",
        "./python.sh nofile.py",
        "torchrun nofile.py",
    ],
)
def test_other_commands_are_executed(line: str, executed: list[list[str]]):
    """Python finds the program, or reports that it does not exist."""
    with pytest.raises(Executed):
        run(parse("--hc", "myhc", "--", *line.split()))
    assert [line.split()] == executed


def test_an_ordinary_run_is_not_checked(executed: list[list[str]], monkeypatch: pytest.MonkeyPatch):
    """With RELAY_DEBUG=off, nothing waits, and Python itself reports the missing script."""
    monkeypatch.setenv("RELAY_DEBUG", "off")
    with pytest.raises(Executed):
        run(parse("--hc", "myhc", "--", "python", "nofile.py"))
    assert [["python", "nofile.py"]] == executed
