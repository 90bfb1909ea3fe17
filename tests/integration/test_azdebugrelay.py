"""Facts about azdebugrelay: programs written for azure-debug-relay are debugged through a real relay."""

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import psutil
import pytest

from relay_client.dap import DapClient
from tests.samples.kit import NO_INDEX, ROOT, line_of
from tests.support.editors.listening import listening_editor
from tests.support.jobs.processes import Job, gone, job, run_job
from tests.support.jobs.running import running_client
from tests.support.machine.deadline import DEADLINE
from tests.support.machine.ports import free_port
from tests.support.network.relay import HC, LocalRelay

CONNECT = """\
from azdebugrelay import DebugRelay, DebugMode, debugpy_connect_with_timeout
import debugpy

port = PORT
relay = DebugRelay.from_environment(debug_mode=DebugMode.Connect, ports=port)
DebugRelay.kill_relays()
relay.open()
print(relay.is_running(), debugpy_connect_with_timeout("127.0.0.1", port, 3600), flush=True)
debugpy.breakpoint()
answer = 42  # the editor stops here
relay.close()
print(relay.is_running())
"""
LISTEN = """\
from azdebugrelay import DebugRelay, DebugMode
import debugpy

host = "127.0.0.2"  # relay-client has the port at 127.0.0.1, on this machine
relay = DebugRelay.from_config(".azrelay.json", DebugMode.WaitForConnection, host, ports=["PORT"])
relay.open()
print(relay.is_running(), flush=True)
debugpy.listen((host, PORT))
debugpy.wait_for_client()
debugpy.breakpoint()
answer = 42  # the editor stops here
relay.close()
print(relay.is_running())
"""
GUIDE = ROOT / "docs" / "guides" / "before-and-now.md"
DEPRECATED = "relay-agent: azdebugrelay is deprecated; use instead: "


def settings(relay: LocalRelay, directory: Path) -> dict[str, str]:
    """Return the environment of a job that finds the relay as one did with azure-debug-relay."""
    return {
        "AZRELAY_CONNECTION_STRING": relay.connection_string("listen"),
        "AZRELAY_CONNECTION_NAME": HC,
        "RELAY_CA_FILE": str(relay.ca_file),
        "RELAY_NODE_DIR": str(directory / "node"),
    }


def script(directory: Path, text: str, port: int) -> tuple[Path, str]:
    """Write a program, and return its file and what runs it."""
    path = directory / "demo.py"
    path.write_text(text.replace("PORT", str(port)))
    return path, f"import runpy; runpy.run_path({str(path)!r}, run_name='__main__')"


async def stopped_at(editor: DapClient, path: Path) -> None:
    """Wait until the job has stopped at the line after its breakpoint, and let it continue."""
    event = await editor.wait_for_event("stopped", within=DEADLINE)
    thread = {"threadId": event["body"]["threadId"]}
    (frame, *_) = (await editor.request("stackTrace", thread, within=DEADLINE))["stackFrames"]
    assert (str(path), line_of(path, "the editor stops here")) == (frame["source"]["path"], frame["line"])
    await editor.request("disconnect", {"terminateDebuggee": False}, within=DEADLINE)


@pytest.mark.job
@pytest.mark.parametrize("rank", ["0", "1"])
async def test_connect_to_an_editor_that_listens(relay: LocalRelay, tmp_path: Path, rank: str) -> None:
    """With a launch configuration of that package, the editor stops at `debugpy.breakpoint()`.

    The port is the one in the program, whatever the rank; one line names the call to write instead.
    """
    port = free_port()
    path, code = script(tmp_path, CONNECT, port)
    environment = settings(relay, tmp_path) | {"RELAY_RANK": rank, "RELAY_WORLD_SIZE": "2"}
    async with (
        listening_editor(port, path, 1) as editor,
        running_client(relay, tmp_path, "--ports", str(port)),
        job(code, **environment) as running,
    ):
        await editor.attached
        assert "True True" == await running.line()
        await stopped_at(editor.client, path)
        status, out, err = await running.finish()
    assert (0, ["False"]) == (status, out)
    call = f"relay_agent.start_remote_debugging('myhc', {port}, wait=15)"
    assert [f"{DEPRECATED}{call}"] == [line for line in err.splitlines() if "deprecated" in line]


@pytest.mark.job
async def test_listen_for_an_editor(relay: LocalRelay, tmp_path: Path) -> None:
    """An editor reaches the port at which the job calls `debugpy.listen`; `close` ends the agent that serves it."""
    port = free_port()
    path, code = script(tmp_path, LISTEN, port)
    environment = settings(relay, tmp_path)
    config = tmp_path / ".azrelay.json"
    config.touch(mode=0o600)
    config.write_text(
        f'{{"AZRELAY_CONNECTION_STRING": "{environment.pop("AZRELAY_CONNECTION_STRING")}",'
        f' "AZRELAY_CONNECTION_NAME": "{environment.pop("AZRELAY_CONNECTION_NAME")}"}}'
    )
    async with (
        running_client(relay, tmp_path, "--ports", str(port)),
        job(code, cwd=tmp_path, **environment) as running,
    ):
        assert "True" == await running.line()
        (agent,) = agents_of(running)
        assert not any("SharedAccessKey" in word for word in agent.cmdline())
        async with await DapClient.connect("127.0.0.1", port, within=DEADLINE) as editor:
            await editor.attach({}, within=DEADLINE)
            await stopped_at(editor, path)
        status, out, err = await running.finish()
    assert (0, ["False"]) == (status, out)
    assert await gone(agent.pid)
    call = f"relay-agent serve --hc myhc --port {port}:127.0.0.2:{port} --dap"
    assert [f"{DEPRECATED}{call}"] == [line for line in err.splitlines() if "deprecated" in line]


def agents_of(running: Job) -> list[psutil.Process]:
    """Return the agents that a job has started to serve its ports."""
    return [child for child in psutil.Process(running.pid).children(recursive=True) if "serve" in child.cmdline()]


@pytest.mark.job
@pytest.mark.parametrize("ending", ["pass", "os._exit(0)", "os.kill(os.getpid(), 9)"])
async def test_an_agent_ends_with_its_job(relay: LocalRelay, tmp_path: Path, ending: str) -> None:
    """A job that ends without `close`, or is killed, leaves no agent behind; a forked child ends nothing."""
    code = f"""
        import os
        from azdebugrelay import DebugRelay
        relay = DebugRelay.from_environment(ports="5678, 5679")
        relay.open()
        if os.fork() == 0:
            sys.exit()
        os.wait()
        print(relay.is_running(), flush=True)
        sys.stdin.readline()
        {ending}
    """
    async with job(code, **settings(relay, tmp_path)) as running:
        assert "True" == await running.line()
        (agent,) = agents_of(running)
        assert ["--port", "5678:127.0.0.1:5678", "--port", "5679:127.0.0.1:5679"] == agent.cmdline()[-5:-1]
        await running.finish()
        assert await gone(agent.pid)


@pytest.mark.job
async def test_several_ports(relay: LocalRelay, tmp_path: Path) -> None:
    """With several ports, the process gets the one that it connects with; others may use the rest of them."""
    code = """
        from azdebugrelay import DebugRelay, DebugMode, debugpy_connect_with_timeout
        from relay_agent.debuggee import process
        relay = DebugRelay.from_environment(DebugMode.Attach, "127.0.0.1", [5678, 5679])
        relay.open()
        print(relay.is_running(), process.current())
        print(debugpy_connect_with_timeout("127.0.0.1", "5679", 0.1), process.current().port)
    """
    status, out, _ = await run_job(code, **settings(relay, tmp_path))
    assert (0, ["True None", "False 5679"]) == (status, out)


@pytest.mark.job
async def test_without_a_relay_object(relay: LocalRelay, tmp_path: Path) -> None:
    """A process that has opened no relay connects with the settings of its environment."""
    code = """
        from azdebugrelay import debugpy_connect_with_timeout
        from relay_agent.debuggee import process
        print(debugpy_connect_with_timeout("127.0.0.1", 5679, 0), process.current().attaching.listening.wait(3600))
    """
    status, out, err = await run_job(code, **settings(relay, tmp_path))
    assert (0, ["False True"]) == (status, out)
    assert f"{DEPRECATED}relay_agent.start_remote_debugging(None, 5679, wait=0)\n" in err


@pytest.mark.job
@pytest.mark.parametrize(
    ("made", "reason"),
    [
        ("DebugRelay('key', 'myhc', DebugMode.Connect, 'sb://x/myhc')", "azdebugrelay needs a connection string"),
        ("DebugRelay('Endpoint=', 'myhc', DebugMode.Connect)", "continuing without a debugger: "),
        ("DebugRelay('Endpoint=', 'myhc', DebugMode.Connect, ports='none')", "invalid port: 'none'"),
        ("DebugRelay(None, None)", "azdebugrelay needs a connection string"),
        ("DebugRelay.from_config('missing.json')", "cannot read the relay's settings in missing.json"),
        ("DebugRelay.from_environment()", "AZRELAY_CONNECTION_STRING and AZRELAY_CONNECTION_NAME must both be set"),
    ],
)
async def test_failures(made: str, reason: str) -> None:
    """Whatever is missing or wrong, the job logs the reason, and continues without a relay."""
    code = f"""
        from azdebugrelay import DebugRelay, DebugMode, debugpy_connect_with_timeout
        relay = {made}
        if relay is not None:
            relay.open()
            print(relay.is_running(), debugpy_connect_with_timeout("127.0.0.1", 5678, 0.1))
            relay.close()
        DebugRelay.kill_relays()
    """
    status, out, err = await run_job(code)
    assert (0, []) == (status, [line for line in out if line != "False False"])
    assert reason in err


def test_the_wheel(tmp_path: Path) -> None:
    """The command of the guide builds a wheel with the module only, which needs nothing from an index."""
    (command,) = re.findall(r"^pip (wheel .*azdebugrelay)$", GUIDE.read_text(), re.MULTILINE)
    words = command.replace("dist", str(tmp_path)).split()
    done = subprocess.run(
        [sys.executable, "-m", "pip", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=6 * DEADLINE,
    )
    if done.returncode and NO_INDEX.search(done.stderr):
        pytest.skip("no package index offers hatchling here")
    assert 0 == done.returncode, done.stderr
    (built,) = tmp_path.iterdir()
    with zipfile.ZipFile(built) as opened:
        names = {name.partition("/")[2]: name for name in opened.namelist()}
        assert "azdebugrelay/__init__.py" == names["__init__.py"]
        assert "Requires-Dist" not in opened.read(names["METADATA"]).decode()
