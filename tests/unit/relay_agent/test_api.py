"""Facts about the functions for jobs: their result, their lines on stderr, and that the job always continues."""

import dataclasses
import re
from pathlib import Path

import pytest

from relay_agent import api, start_remote_debugging, start_remote_debugging_from_args
from relay_agent.settings.model import DebugSettings
from relay_client.dap import DapClient
from tests.support.data.debug_settings import ALL_SET
from tests.support.jobs.processes import gone, job, run_job
from tests.support.machine.deadline import DEADLINE
from tests.support.machine.secrets import new_key

CONTINUING = "relay-agent: continuing without a debugger"
CALL = "import relay_agent; print(relay_agent.start_remote_debugging_from_args(), flush=True)\n"


async def test_ordinary_run_costs_nothing():
    """A run that is not debugged imports neither debugpy nor anything that talks to a network, and starts nothing."""
    code = CALL + (
        "print(sorted({name.split('.')[0] for name in sys.modules} &"
        " {'asyncio', 'azure', 'cryptography', 'debugpy', 'socket', 'ssl', 'subprocess', 'threading', 'websockets'}))\n"
        "print([name for name in sys.modules if name.startswith('relay_agent.push')])\n"
    )
    assert await run_job(code, "--is-debug", "False", "--debug-allow-edit") == (0, ["False", "[]", "[]"], "")


async def test_import_is_light():
    """Importing the library brings argparse and a handful of our own modules, which `make bench` times."""
    code = """
        import __future__, argparse, collections.abc, contextlib, typing  # `typing` imports contextlib up to 3.12
        before = set(sys.modules)
        import relay_agent
        print(sorted(name for name in set(sys.modules) - before if not name.startswith(("relay_agent", "relay_core"))))
    """
    assert (await run_job(code))[1] == ["[]"]


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[DebugSettings]:
    """The settings with which debugging would start."""
    found: list[DebugSettings] = []
    monkeypatch.setattr(api, "start_debugging", lambda settings, rank: found.append(settings))
    return found


def test_call_without_settings(started: list[DebugSettings]) -> None:
    """The defaults of the call are those of a command line."""
    start_remote_debugging("myhc")
    assert [DebugSettings()._replace(access=started[0].access)] == started


def test_call_with_all_settings(started: list[DebugSettings]) -> None:
    """Each setting of the table is a parameter; times are numbers or texts."""
    start_remote_debugging(
        *("myhc", 6000),
        wait=0.5,
        debug_ranks="0,3-5",
        on_timeout="abort",
        on_crash=True,
        hold="2m",
        timeouts=3600,
        forward=range(6006, 6008),
        tensorboard=("runs", "logs"),
        monitor="10s",
        metrics=9464,
        follow_children=True,
        values=False,
        allow_edit=True,
    )
    (settings,) = started
    expected = ALL_SET._replace(
        access=settings.access,
        wait=0.5,
        hold=120.0,
        forwards=(6006, 6007),
        event_directories=("runs", "logs"),
        monitor=10.0,
        metrics=("127.0.0.1", 9464),
        allow_edit=True,
    )
    assert expected == settings


def test_call_with_an_invalid_setting(capfd: pytest.CaptureFixture[str], started: list[DebugSettings]) -> None:
    """The parameter is named in one line, and the job continues."""
    assert start_remote_debugging("myhc", hold="soon") is False
    assert [] == started
    assert capfd.readouterr().err.startswith("relay-agent: error: hold: invalid duration: 'soon'")


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--is-debug", "maybe"], "error: --is-debug: invalid flag: 'maybe'. hint: use true or false"),
        (
            ["--is-debug", "--debug-relay-connection-name", "none"],
            "error: no hybrid connection given. hint: add --debug-relay-connection-name",
        ),
        (
            ["--is-debug", "--debug-relay-connection-name=x", "--debug-port=five"],
            "error: --debug-port: invalid port: 'five'. hint: use a number from 1 to 65535, such as 5678",
        ),
    ],
)
def test_wrong_arguments(capfd, monkeypatch, arguments, line):
    """An invalid value is reported in one line, and the job continues."""
    monkeypatch.delenv("RELAY_CONNECTION_STRING", raising=False)
    monkeypatch.delenv("RELAY_CONNECTION_STRING_FILE", raising=False)
    assert start_remote_debugging_from_args(arguments) is False
    assert capfd.readouterr() == ("", f"relay-agent: {line}\n{CONTINUING}\n")


def test_names_of_the_old_package(capfd, monkeypatch):
    """The keywords of the old package are accepted, and a secret without Key Vault is reported in one sentence."""
    for name in ("RELAY_CONNECTION_STRING", "RELAY_CONNECTION_STRING_FILE", "RELAY_NAMESPACE", "KEY_VAULT_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("AZRELAY_CONNECTION_STRING", raising=False)
    attached = start_remote_debugging(
        debug_relay_connection_string_secret="debugsecret",
        debug_relay_connection_name="myhc",
        debug_port=5678,
        debugpy_connect_timeout=15,
    )
    assert attached is False
    expected = "error: secret 'debugsecret' is given without a Key Vault. hint: set KEY_VAULT_URL"
    assert expected in capfd.readouterr().err


async def test_a_module_of_the_job_that_exits(tmp_path: Path):
    """A module with the name of one of Python's, which only debugging imports, does not end the job."""
    (tmp_path / "random.py").write_text("raise SystemExit(2)")
    arguments = ["--is-debug", "true", "--debug-relay-connection-name", "myhc", "--debug-wait", "0"]
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n{CALL}"
    status, out, err = await run_job(code, *arguments, RELAY_NODE_DIR=str(tmp_path / "node"))
    assert (0, ["False"]) == (status, out), err


async def test_agent_gives_up():
    """The wait ends with the agent, the job runs at full speed again, and logs why it is not debugged."""
    code = CALL + "print(sys.gettrace())"
    arguments = ["--is-debug", "true", "--debug-relay-connection-name", "myhc", "--debug-wait", "3600"]
    status, out, err = await run_job(code, *arguments)
    assert (status, out) == (0, ["False", "None"])
    assert f"{CONTINUING}: no connection string is configured" in err


async def test_hints_name_the_arguments_of_the_job(relay, tmp_path):
    """An error of the agent names the job's argument, not the option of other programs."""
    secret = str(relay.connection_file(tmp_path, "listen"))
    arguments = ["--is-debug", "--debug-relay-connection-name", "other"]
    status, out, err = await run_job(CALL, *arguments, RELAY_CONNECTION_STRING_FILE=secret)
    assert (status, out) == (0, ["False"])
    assert "the connection string is for hybrid connection 'myhc', not for 'other'. hint: use " in err
    assert "hint: use --debug-relay-connection-name myhc, or a connection string for 'other'" in err


async def test_the_connection_string_names_the_hybrid_connection(relay, tmp_path):
    """Without a name, the agent uses the EntityPath of the connection string, which the job does not read."""
    secret = str(relay.connection_file(tmp_path, "listen"))
    code = CALL + (
        "from relay_agent.debuggee import process\n"
        "client = process.current().node_client\n"
        "print(client.attaching.listening.wait(3600), {'relay_core.auth', 'asyncio'} & set(sys.modules))"
    )
    environment = {"RELAY_CONNECTION_STRING_FILE": secret, "RELAY_CA_FILE": str(relay.ca_file)}
    status, out, err = await run_job(code, "--is-debug", "--debug-ranks=none", **environment)
    assert (status, out) == (0, ["False", "True set()"])
    assert "relay-agent: a debugger can attach on port 5678 once the agent is listening\n" in err


async def test_a_connection_string_without_a_name(relay):
    """If the connection string has no EntityPath either, the error names the job's argument."""
    text = relay.connection_string("listen", hc=None)
    status, out, err = await run_job(CALL, "--is-debug", RELAY_CONNECTION_STRING=text)
    assert (status, out) == (0, ["False"])
    assert f"{CONTINUING}: no hybrid connection given. hint: add --debug-relay-connection-name <name>, or append" in err


@pytest.mark.parametrize(
    ("arguments", "warnings"),
    [
        (["--debug-rank", "none"], ["--debug-rank; did you mean --debug-ranks?"]),
        (["--debug_wait=5", "--debug-prot", "1"],
         ["--debug_wait; did you mean --debug-wait?", "--debug-prot; did you mean --debug-port?"]),
        (["--debug-level", "3", "--debug", "--rank", "3"], []),
    ],
)  # fmt: skip
async def test_misspelt_arguments(arguments, warnings, tmp_path):
    """Rank 0 logs a warning for each; other arguments that begin with `--debug-` belong to the job."""
    for rank in ("0", "1"):
        environment = {"RELAY_RANK": rank, "RELAY_WORLD_SIZE": "2", "RELAY_NODE_DIR": str(tmp_path / rank)}
        status, out, err = await run_job(CALL, "--is-debug", "true", *arguments, **environment)
        assert (status, out) == (0, ["False"])
        found = [line for line in err.splitlines() if "warning" in line]
        assert [f"relay-agent: warning: unknown argument {each}" for each in warnings if rank == "0"] == found
    assert "warning" not in (await run_job(CALL, *arguments))[2]


@pytest.mark.parametrize(
    ("arguments", "is_meant"),
    [
        ("--is_debug true --debug-port 5678", True),
        ("--isdebug --debug-relay-connection-name=myhc", True),
        ("--is_debug=1 --debug-port 5678", True),
        ("--is_debug false --debug-port 5678", False),
        ("--is_debug true --is-debug false --debug-port 5678", False),
        ("--is_debug true --debug", False),
        ("--is-debgu true --debug", True),
        ("--debug --debug-port 5678", False),
    ],
)
def test_misspelt_switch(arguments, is_meant, capfd):
    """One that was probably meant as `--is-debug`, by other debugging arguments or as a typing error, is reported."""
    assert not start_remote_debugging_from_args(arguments.split())
    name = arguments.split()[0].partition("=")[0]
    warning = f"relay-agent: warning: unknown argument {name}; did you mean --is-debug?\n"
    assert (warning if is_meant else "") == capfd.readouterr().err


async def test_nobody_comes(relay, tmp_path):
    """The wait ends after `--debug-wait` seconds; the job runs at full speed, and can be attached to later."""
    code = CALL + "sys.stdin.readline(); names = [*sys.modules]; print('debugpy' in names, "
    code += "[name for name in names if name.startswith(('relay_agent.push', 'relay_core.agent_api.push'))])"
    arguments = ["--is-debug=1", "--debug-relay-connection-name=myhc", "--debug-wait=0.2", "--debug-allow-edit"]
    secret = str(relay.connection_file(tmp_path, "listen"))
    async with job(code, *arguments, RELAY_CONNECTION_STRING_FILE=secret, RELAY_CA_FILE=str(relay.ca_file)) as running:
        assert await running.line() == "False"
        status, out, err = await running.finish()
    assert (status, out) == (0, ["False []"])
    assert "relay-agent: waiting up to 0.2 s for a debugger on port 5678 ('myhc')" in err
    # Whether the agent listens after 0.2 s depends on the machine.
    assert re.search(
        r"no debugger attached within 0.2 s; continuing \(a debugger can (still )?attach on port 5678", err
    )


async def test_unexpected_trouble(capfd, monkeypatch):
    """After any internal error the job gets False and a line on stderr, not an exception."""
    monkeypatch.setattr("relay_agent.debuggee.debugger.Debugger.is_armed", lambda _debugger: 1 / 0)
    assert start_remote_debugging("myhc") is False
    assert "relay-agent: error: ZeroDivisionError: division by zero" in capfd.readouterr().err


async def test_job_that_listens_on_its_own(relay, tmp_path):
    """A job that called `debugpy.listen` is reached on that port; if the port is unknown, the reason is logged."""
    code = "import debugpy; debugpy.listen(('127.0.0.1', 0))\n" + CALL
    status, out, err = await run_job(code, "--is-debug=1", "--debug-relay-connection-name=myhc")
    assert (status, out) == (0, ["False"])
    assert "debugpy is already in use, on an unknown port. hint: remove the job's own call to debugpy.listen()" in err


async def test_attached_at_the_second_call(relay, tmp_path):
    """A second call uses the registration of the first, and returns True when a debugger is attached."""
    code = """
        import relay_agent, os
        from relay_agent.debuggee import process
        from relay_agent.debuggee.debugger import debugger
        settings = dict(connection_string_file=sys.argv[1], ca_file=sys.argv[2])
        print(relay_agent.start_remote_debugging("myhc", wait=0, **settings), flush=True)
        process.current().attaching.registered.wait(3600)
        agent = process.current().node_client.agent_pid
        print(agent, debugger.arm(), flush=True)
        for _ in range(2):
            print(relay_agent.start_remote_debugging("myhc", wait=3600, **settings), flush=True)
        print(process.current().node_client.agent_pid == agent)
        sys.stdin.readline()
    """
    async with job(code, str(relay.connection_file(tmp_path, "listen")), str(relay.ca_file)) as running:
        assert await running.line() == "False"
        agent, port = map(int, (await running.line()).split())
        client = await DapClient.connect("127.0.0.1", port, within=DEADLINE)
        await client.attach({}, within=DEADLINE)
        assert [await running.line() for _ in range(2)] == ["True"] * 2
        await client.close()
        status, out, err = await running.finish()
    assert (status, out) == (0, ["True"])
    assert "relay-agent: debugger attached after " in err
    assert "relay-agent: a debugger is already attached" in err
    assert await gone(agent)


async def test_abort_when_nobody_comes(relay, tmp_path):
    """With `--debug-on-timeout abort` a job without a debugger ends with status 14 and logs why."""
    arguments = ["--is-debug", "--debug-relay-connection-name=myhc", "--debug-wait=0.2", "--debug-on-timeout=abort"]
    secret = str(relay.connection_file(tmp_path, "listen"))
    status, out, err = await run_job(
        CALL, *arguments, RELAY_CONNECTION_STRING_FILE=secret, RELAY_CA_FILE=str(relay.ca_file)
    )
    assert (status, out) == (14, [])
    assert "relay-agent: no debugger attached in time; exiting (--debug-on-timeout abort)" in err


STATE = """
    import relay_agent
    from relay_agent.debuggee import process
    def print_state():
        print(process.current().node_client._registration["register"]["state"], flush=True)
"""


@pytest.mark.parametrize(("policy", "state"), [("continue", "running"), ("abort", "waiting")])
async def test_a_rank_that_exits_is_not_announced_as_running(relay, tmp_path, policy, state):
    """After the wait, the process is announced as running only if it continues."""
    arguments = ["--is-debug", "--debug-relay-connection-name=myhc", "--debug-wait=0.2", f"--debug-on-timeout={policy}"]
    secret = str(relay.connection_file(tmp_path, "listen"))
    code = (
        STATE
        + """
    try:
        relay_agent.start_remote_debugging_from_args()
    finally:
        print_state()
    """
    )
    _, out, _ = await run_job(code, *arguments, RELAY_CONNECTION_STRING_FILE=secret, RELAY_CA_FILE=str(relay.ca_file))
    assert out == [state]


async def test_a_breakpoint_after_a_wait_that_would_have_ended_the_job(relay, tmp_path):
    """The job continues if no debugger attaches at the breakpoint, and is announced as running."""
    arguments = ["--is-debug", "--debug-relay-connection-name=myhc", "--debug-wait=3600", "--debug-on-timeout=abort"]
    secret = str(relay.connection_file(tmp_path, "listen"))
    code = (
        STATE
        + """
    from relay_agent.debuggee.debugger import debugger
    print(debugger.arm(), flush=True)
    relay_agent.start_remote_debugging_from_args()
    print_state()
    sys.stdin.readline()
    relay_agent.breakpoint(hold=0.1)
    print_state()
    """
    )
    environment = {"RELAY_CONNECTION_STRING_FILE": secret, "RELAY_CA_FILE": str(relay.ca_file)}
    async with job(code, *arguments, **environment) as running:
        async with await DapClient.connect("127.0.0.1", int(await running.line()), within=DEADLINE) as client:
            await client.attach({}, within=DEADLINE)
            assert await running.line() == "running"
            await client.request("disconnect", {"terminateDebuggee": False}, within=DEADLINE)
        assert (await running.finish())[:2] == (0, ["running"])


async def test_rank_that_does_not_wait(relay, tmp_path):
    """A rank that is not selected continues immediately and logs on which port it can be debugged, and when."""
    arguments = ["--is-debug", "--debug-relay-connection-name=myhc", "--debug-ranks=1-2"]
    environment = {
        "RELAY_CONNECTION_STRING_FILE": str(relay.connection_file(tmp_path, "listen")),
        "RELAY_CA_FILE": str(relay.ca_file),
        "RELAY_RANK": "3",
        "RELAY_WORLD_SIZE": "4",
    }
    status, out, err = await run_job(CALL, *arguments, **environment)
    assert (status, out) == (0, ["False"])
    assert "relay-agent: rank 3: a debugger can attach on port 5681 ('myhc') once the agent is listening\n" in err


async def test_no_agent_can_be_started():
    """A job whose agent cannot be started logs only the reason, and not that a debugger can attach, or a wait."""
    for waiting in ("--debug-ranks=none", "--debug-wait=3600"):
        code = "import sys\nsys.executable = '/opt/host/bin/mayahost'\n" + CALL
        arguments = ["--is-debug", "--debug-relay-connection-name=myhc", waiting]
        status, out, err = await run_job(code, *arguments)
        assert (status, out) == (0, ["False"])
        [line] = [line for line in err.splitlines() if line.startswith("relay-agent:")]
        assert line.startswith(f"{CONTINUING}: cannot start the agent: this program embeds Python"), waiting


async def test_a_refused_key(relay, tmp_path):
    """A job that does not wait never states that a debugger can attach now if the relay refuses its key."""
    arguments = ["--is-debug", "--debug-relay-connection-name=myhc", "--debug-ranks=none"]
    refused = dataclasses.replace(relay, listen_key=new_key())
    secret = str(refused.connection_file(tmp_path, "listen"))
    code = CALL + "from relay_agent.debuggee import process; process.current().attaching.hopeless.wait(3600)"
    environment = {"RELAY_CONNECTION_STRING_FILE": secret, "RELAY_CA_FILE": str(relay.ca_file)}
    _, _, err = await run_job(code, *arguments, **environment)
    possible = [line for line in err.splitlines() if "can attach" in line]
    assert possible == ["relay-agent: a debugger can attach on port 5678 ('myhc') once the agent is listening"]
    assert f"{CONTINUING}: the relay localhost refused the credentials for 'myhc'" in err


async def test_breakpoint_in_an_ordinary_run():
    """`relay_agent.breakpoint()` does nothing and imports nothing in a run that is not debugged."""
    code = """
        import relay_agent
        for _ in range(3): relay_agent.breakpoint()
        print(sorted({name.split('.')[0] for name in sys.modules} & {'debugpy', 'socket', 'subprocess', 'threading'}))
    """
    assert await run_job(code, "--epochs", "3") == (0, ["[]"], "")


async def test_failure_of_what_nobody_waits_for(tmp_path):
    """A job on demand logs once why no debugger can attach, and what to do."""
    code = """
        import relay_agent
        from relay_agent.debuggee import process
        relay_agent.start_remote_debugging("myhc", 5678, wait=0)
        print(process.current().attaching.hopeless.wait(3600))
    """
    place = tmp_path / ("long" * 25)
    status, out, err = await run_job(code, RELAY_CONNECTION_STRING="Endpoint=sb://x/", RELAY_NODE_DIR=str(place))
    assert (status, out) == (0, ["True"])
    assert err.count("too long for a socket") == 1
    assert (
        f"{CONTINUING}: the path '{place}' is too long for a socket. hint: set RELAY_NODE_DIR to a shorter path" in err
    )
