"""Facts about the functions for jobs: their result, their lines on stderr, and that the job always continues."""

import re
import time

import pytest

from relay_agent import start_remote_debugging, start_remote_debugging_from_args
from relay_client.dap.client import DapClient
from tests.support.jobs import gone, job, run_job

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
        import __future__, argparse, collections.abc, typing
        before = set(sys.modules)
        import relay_agent
        print(sorted(name for name in set(sys.modules) - before if not name.startswith(("relay_agent", "relay_core"))))
    """
    assert (await run_job(code))[1] == ["[]"]


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
    expected = "error: secret 'debugsecret' is given, but no Key Vault. hint: set KEY_VAULT_URL"
    assert expected in capfd.readouterr().err


async def test_agent_gives_up():
    """The wait ends with the agent, the job runs at full speed again, and logs why it is not debugged."""
    code = CALL + "print(sys.gettrace())"
    started = time.monotonic()
    status, out, err = await run_job(code, "--is-debug", "true", "--debug-relay-connection-name", "myhc")
    assert (status, out) == (0, ["False", "None"])
    assert f"{CONTINUING}: no connection string is configured" in err
    assert time.monotonic() - started < 20


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


async def test_job_that_listens_by_itself(relay, tmp_path):
    """A job that called `debugpy.listen` is reached on that port; if the port is unknown, the reason is logged."""
    code = "import debugpy; debugpy.listen(('127.0.0.1', 0))\n" + CALL
    status, out, err = await run_job(code, "--is-debug=1", "--debug-relay-connection-name=myhc")
    assert (status, out) == (0, ["False"])
    assert "debugpy is already in use, on an unknown port. hint: remove the job's own call of debugpy.listen()" in err


async def test_attached_at_the_second_call(relay, tmp_path):
    """A second call uses the registration of the first, and returns True when a debugger is attached."""
    code = """
        import relay_agent, os
        from relay_agent.debuggee import process
        from relay_agent.debuggee.debugger import debugger
        settings = dict(connection_string_file=sys.argv[1], ca_file=sys.argv[2])
        print(relay_agent.start_remote_debugging("myhc", wait=0, **settings), flush=True)
        process.current().node_client.registered.wait(20)
        agent = process.current().node_client.agent_pid
        print(agent, debugger.arm(), flush=True)
        for _ in range(2):
            print(relay_agent.start_remote_debugging("myhc", wait=30, **settings), flush=True)
        print(process.current().node_client.agent_pid == agent)
        sys.stdin.readline()
    """
    async with job(code, str(relay.connection_file(tmp_path, "listen")), str(relay.ca_file)) as running:
        assert await running.line() == "False"
        agent, port = map(int, (await running.line()).split())
        client = await DapClient.connect("127.0.0.1", port)
        await client.attach({})
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


async def test_rank_that_does_not_wait(relay, tmp_path):
    """A rank that is not selected continues immediately and logs the port on which it can be debugged."""
    arguments = ["--is-debug", "--debug-relay-connection-name=myhc", "--debug-ranks=1-2"]
    environment = {
        "RELAY_CONNECTION_STRING_FILE": str(relay.connection_file(tmp_path, "listen")),
        "RELAY_CA_FILE": str(relay.ca_file),
        "RELAY_RANK": "3",
        "RELAY_WORLD_SIZE": "4",
    }
    status, out, err = await run_job(CALL, *arguments, **environment)
    assert (status, out) == (0, ["False"])
    assert "relay-agent: rank 3: a debugger can attach on port 5681 ('myhc')" in err


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
        print(process.current().node_client.hopeless.wait(30))
    """
    place = tmp_path / ("long" * 25)
    status, out, err = await run_job(code, RELAY_CONNECTION_STRING="Endpoint=sb://x/", RELAY_NODE_DIR=str(place))
    assert (status, out) == (0, ["True"])
    assert err.count("too long for a socket") == 1
    assert (
        f"{CONTINUING}: the path of {place} is too long for a socket. hint: set RELAY_NODE_DIR to a shorter one" in err
    )
