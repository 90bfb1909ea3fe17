"""Facts about jobs that are to be debugged and are not: nobody attaches, nobody looks at a crash, the relay is down."""

import asyncio
import os
import re
import signal
import sys
import time
from pathlib import Path

import pytest

from relay_agent.job.paths import in_front
from relay_client.dap import DapClient
from tests.support.jobs.processes import ROOT
from tests.support.jobs.running import access, running_client, running_job
from tests.support.machine import secrets
from tests.support.machine.deadline import DEADLINE
from tests.support.machine.ports import free_port
from tests.support.machine.programs import Finished, program, run
from tests.support.machine.streams import local_server
from tests.support.network.relay import HC, LocalRelay, local_relay

pytestmark = pytest.mark.e2e

LOOP = """\
import time

step = 0
while True:
    step += 1
    time.sleep(0.01)
"""
PATIENT = """\
import sys

if "node-agent" in sys.orig_argv:
    from relay_core.net.websocket import handshake

    handshake.open_websocket.__kwdefaults__["timeout"] = 3600.0
"""
"""A `sitecustomize` with which an agent gives a relay an hour to answer."""
WAITS_FOR = """\
import os
import time

while not os.path.exists("{}"):
    time.sleep(0.01)
print("ran")
"""


async def run_script(relay: LocalRelay, directory: Path, code: str, *options: str, **environ: str) -> Finished:
    """Run a script under `relay-agent run` to its end."""
    script = directory / "train.py"
    script.write_text(code)
    command = ("run", "--hc", HC, "--port", str(free_port()), *options, "--", sys.executable, str(script))
    return await run("relay_agent", *command, env={**access(relay, directory, "listen"), **environ})


async def test_job_that_nobody_debugs(relay: LocalRelay, tmp_path: Path) -> None:
    """Its log has the line that it can be debugged, and those of the agent; debugpy is not even looked for."""
    code = "import sys, time\ntime.sleep(2)\nprint('debugpy' in sys.modules)\n"
    finished = await run_script(relay, tmp_path, code, "--debug-ranks", "none")
    assert (0, "False\n") == (finished.status, finished.stdout)
    expected = (
        "relay-agent: a debugger can attach on port",
        "relay-agent: warning: no TunnelKey",
        "relay-agent: listening on",
    )
    assert expected[0] in finished.stderr
    assert [] == [line for line in finished.stderr.splitlines() if not line.startswith(expected)]


async def test_crash_that_nobody_looks_at(relay: LocalRelay, tmp_path: Path) -> None:
    """The hold ends in time, and the job as it would have: with its traceback, and its status."""
    options = ("--debug-ranks", "none", "--debug-on-crash", "--hold", "1")
    finished = await run_script(relay, tmp_path, "loss = 0\nprint(1 / loss)\n", *options)
    assert 1 == finished.status
    traceback, _, rest = finished.stderr.partition("crashed: ZeroDivisionError: division by zero; held for up to 1 s")
    assert "Traceback (most recent call last):" in traceback
    assert "Traceback" not in rest
    assert "relay-agent: no debugger attached in time; exiting" in finished.stderr
    of_job = [line for line in finished.stderr.splitlines() if not line.startswith("relay-agent: ")]
    assert "Traceback (most recent call last):" == of_job[0]
    assert "ZeroDivisionError: division by zero" == of_job[-1]


@pytest.mark.parametrize("ending", ["raise SystemExit(2) from error", "os._exit(2)", "sys.excepthook = leave; raise"])
async def test_crash_that_the_program_catches(relay: LocalRelay, tmp_path: Path, ending: str) -> None:
    """Nothing is held then; the log states it, and how to hold such an exception."""
    code = f"""import os, sys, time
def leave(*_exception):
    os._exit(2)
time.sleep(2)
try:
    1 / 0
except ZeroDivisionError as error:
    {ending}
"""
    finished = await run_script(relay, tmp_path, code, "--debug-ranks", "none", "--debug-on-crash", "--hold", "3600")
    assert 2 == finished.status
    sentence = "train.py ended with status 2 without an uncaught exception, so --debug-on-crash did not hold it. hint: "
    assert 1 == finished.stderr.count(sentence)


@pytest.mark.parametrize(
    ("policy", "status", "printed", "logged"),
    [
        ("continue", 0, "ran\n", "no debugger attached within 1 s; continuing"),
        ("abort", 14, "", "no debugger attached in time; exiting (--debug-on-timeout abort)"),
    ],
)
async def test_wait_that_is_over(
    relay: LocalRelay, tmp_path: Path, policy: str, status: int, printed: str, logged: str
) -> None:
    """If no debugger attaches in time, a rank runs on, or ends with status 14 before its program has begun."""
    finished = await run_script(relay, tmp_path, "print('ran')\n", "--wait", "1", "--on-timeout", policy)
    assert (status, printed) == (finished.status, finished.stdout)
    assert logged in finished.stderr
    assert not (tmp_path / "node").exists()


async def test_wait_that_a_signal_handler_of_the_job_ends(relay: LocalRelay, tmp_path: Path) -> None:
    """A handler that was installed before the program, as by a module of PYTHONPATH, ends the job with its status."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(
        "import signal, sys\n"
        "if len(sys.orig_argv) == 2:  # not in the agent\n"
        "    signal.signal(signal.SIGALRM, lambda *_: sys.exit(3))\n"
        "    signal.alarm(1)\n"
    )
    path = os.pathsep.join([str(tmp_path / "site"), str(ROOT)])
    finished = await run_script(relay, tmp_path, "print('ran')\n", "--wait", "60", PYTHONPATH=path)
    assert (3, "") == (finished.status, finished.stdout), finished.stderr


async def test_wait_that_is_interrupted(relay: LocalRelay, tmp_path: Path) -> None:
    """Ctrl-C during the wait ends the script at its call, with one line and without the frames of the wait."""
    (tmp_path / "train.py").write_text(
        "import relay_agent\nprint('begun')\nrelay_agent.start_remote_debugging_from_args()\nprint('ran')\n"
    )
    arguments = ("--is-debug", "true", "--debug-relay-connection-name", HC, "--debug-port", str(free_port()))
    environment = access(relay, tmp_path, "listen")
    async with program("train", *arguments, env=environment, cwd=tmp_path) as job:
        await job.line("waiting up to")
        await job.line("listening on")
        job.process.send_signal(signal.SIGINT)
        ended = await job.finish()
    assert (-signal.SIGINT, "begun\n") == (ended.status, ended.stdout)
    _, _, shown = ended.stderr.partition("relay-agent: interrupted before a debugger was attached\n")
    assert shown.endswith("KeyboardInterrupt\n")
    frames = [name for name in re.findall(r'File ".*/(.*\.py)"', shown) if name != "runpy.py"]  # up to Python 3.10
    assert ["train.py"] + ["api.py"] * (len(frames) - 1) == frames
    assert 1 == shown.count("Traceback")


async def test_relay_that_is_down(tls_directory: Path, tmp_path: Path) -> None:
    """The job waits for its debugger as long as usual, logs once that the relay is away, and runs to its end."""
    async with local_relay(tls_directory) as relay:
        pass
    finished = await run_script(relay, tmp_path, "print('ran')\n", "--wait", "10")
    assert (0, "ran\n") == (finished.status, finished.stdout)
    assert 1 == finished.stderr.count("not listening, retrying: ")
    assert 1 == finished.stderr.count("connection refused")
    assert "no debugger attached within 10 s; continuing (a debugger can attach on port" in finished.stderr


async def debug(relay: LocalRelay, directory: Path, port: int, script: Path) -> None:
    """Stop at a breakpoint of `LOOP`, and leave."""
    async with (
        running_client(relay, directory, "--ports", str(port)),
        await DapClient.connect("127.0.0.1", port, within=DEADLINE) as dap,
    ):
        await dap.attach({str(script): [{"line": 5}]}, within=DEADLINE)
        await dap.wait_for_event("stopped", within=DEADLINE)
        await dap.request("disconnect", {"terminateDebuggee": False}, within=DEADLINE)


async def test_relay_that_cannot_be_reached_is_not_waited_for(relay: LocalRelay, tmp_path: Path) -> None:
    """A waiting job continues after half a minute, logs why once, and is debugged when the relay is there."""
    script, port = tmp_path / "train.py", free_port()
    script.write_text(LOOP)
    await relay.server.stop()
    started = time.monotonic()
    async with running_job(relay, script, "--port", str(port), "--wait", "3600") as job:
        line = await job.line("continuing without a debugger: cannot connect to localhost")
        assert 25 < time.monotonic() - started
        assert f"a debugger can attach on port {port} ('{HC}') as soon as the agent is listening. hint: " in line
        await relay.server.start()
        await debug(relay, tmp_path, port, script)


async def test_proxy_that_refuses(relay: LocalRelay, tmp_path: Path) -> None:
    """A job with --debug-on-timeout abort behind a proxy that refuses ends with status 14, and the proxy's reason."""

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()
        writer.close()

    async with local_server(refuse) as (port, _):
        proxy = dict.fromkeys(("HTTPS_PROXY", "https_proxy"), f"http://127.0.0.1:{port}") | {"NO_PROXY": ""}
        options = ("--wait", "3600", "--on-timeout", "abort")
        finished = await run_script(relay, tmp_path, "print('ran')\n", *options, **proxy)
    assert (14, "") == (finished.status, finished.stdout)
    assert 1 == finished.stderr.count("no longer waiting for a debugger: the proxy refused the connection to localhost")
    assert "continuing" not in finished.stderr


async def test_failure_of_a_job_that_exits_without_a_debugger(relay: LocalRelay, tmp_path: Path) -> None:
    """The reason is in the log once, and no line states that the job continues."""
    options = ("--wait", "3600", "--on-timeout", "abort")
    missing = tmp_path / "missing.pem"
    finished = await run_script(relay, tmp_path, "print('ran')\n", *options, RELAY_CA_FILE=str(missing))
    assert (14, "") == (finished.status, finished.stdout)
    lines = [line.partition(". hint:")[0] for line in finished.stderr.splitlines()]
    reason = f"relay-agent: no debugger can attach: cannot use the CA file {missing}: No such file or directory"
    others = [line for line in lines if "waiting up to" not in line]  # if the agent has not failed before that
    assert [reason, "relay-agent: exiting (--debug-on-timeout abort)"] == others


async def test_proxy_that_cannot_be_used(relay: LocalRelay, tmp_path: Path) -> None:
    """A job behind a SOCKS proxy, which is not supported, continues at once with the reason and a hint."""
    proxy = {"HTTPS_PROXY": "socks5h://127.0.0.1:1", "https_proxy": "socks5h://127.0.0.1:1", "NO_PROXY": ""}
    finished = await run_script(relay, tmp_path, "print('ran')\n", "--wait", "3600", **proxy)
    assert (0, "ran\n") == (finished.status, finished.stdout)
    assert "continuing without a debugger: HTTPS_PROXY names a SOCKS proxy" in finished.stderr
    assert "hint: run: pip install 'python-socks[asyncio]'" in finished.stderr
    assert "Traceback" not in finished.stderr


async def test_crash_that_no_debugger_can_look_at(relay: LocalRelay, tmp_path: Path) -> None:
    """A crash is not held when the agent cannot listen; the reason is logged, and the job ends as it would have."""
    proxy = {"HTTPS_PROXY": "socks5h://127.0.0.1:1", "https_proxy": "socks5h://127.0.0.1:1", "NO_PROXY": ""}
    options = ("--debug-ranks", "none", "--debug-on-crash", "--hold", "3600")
    finished = await run_script(relay, tmp_path, "print(1 / 0)\n", *options, **proxy)
    assert 1 == finished.status
    assert re.search(
        r"(not held for a debugger|no debugger can attach; exiting): HTTPS_PROXY names a SOCKS", finished.stderr
    )
    assert "\nZeroDivisionError: division by zero\n" in finished.stderr


async def test_relay_that_does_not_answer(relay: LocalRelay, tmp_path: Path) -> None:
    """A job on demand runs and ends while its agent still waits for a relay behind a dead network."""
    dialled = tmp_path / "dialled"

    async def never_answer(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        dialled.touch()
        while await reader.read(65536):
            pass

    async with local_server(never_answer) as (port, _):
        access = tmp_path / "dead.connection"
        access.touch(mode=0o600)
        key = f"SharedAccessKeyName=listen;SharedAccessKey={relay.listen_key}"
        access.write_text(f"Endpoint=sb://localhost:{port};{key}")
        options = ("--debug-ranks", "none", "--connection-string-file", str(access))
        (tmp_path / "sitecustomize.py").write_text(PATIENT)
        search = in_front(tmp_path, os.environ.get("PYTHONPATH"))
        finished = await run_script(relay, tmp_path, WAITS_FOR.format(dialled), *options, PYTHONPATH=search)
        assert (0, "ran\n") == (finished.status, finished.stdout)
        assert not (tmp_path / "node").exists()


async def test_relay_that_comes_later(relay: LocalRelay, tmp_path: Path) -> None:
    """A job that began without a relay is debugged on demand as soon as there is one."""
    script, port = tmp_path / "train.py", free_port()
    script.write_text(LOOP)
    await relay.server.stop()
    async with running_job(relay, script, "--port", str(port), "--debug-ranks", "none") as job:
        await job.line("not listening, retrying: ")
        await relay.server.start()
        await debug(relay, tmp_path, port, script)


@pytest.mark.parametrize(
    ("script", "options", "outcome"),
    [
        ("print(1)", ["--wait", "60"], "continuing without a debugger: "),
        ("print(1)", ["--wait", "60", "--on-timeout", "abort"], "no debugger can attach: "),
        ("print(1 / 0)", ["--debug-ranks", "none", "--debug-on-crash"], "not held for a debugger: "),
    ],
    ids=["continues", "exits", "crashes"],
)
async def test_wrong_key(relay: LocalRelay, tmp_path: Path, script: str, options: list[str], outcome: str) -> None:
    """The log states once that the relay refuses the key, together with what the job does now."""
    wrong = relay.connection_string("listen").replace(relay.listen_key, secrets.new_key())
    environ = {"RELAY_CONNECTION_STRING": wrong, "RELAY_CONNECTION_STRING_FILE": ""}
    finished = await run_script(relay, tmp_path, script, *options, **environ)
    (line,) = [line for line in finished.stderr.splitlines() if "refused the credentials" in line]
    assert f"{outcome}the relay localhost refused the credentials" in line
    assert "held for up to" not in finished.stderr
