"""Runs a command together with a relay and relay-client on this machine, so that you can try samples without Azure.

    python local_relay.py --ports 5678-5681 -- relay-agent run --hc myhc -- torchrun ... train.py

The script starts the relay and relay-client, runs the command after `--` with the environment variables for that relay,
and exits with the command's exit status. When the command exits, or on Ctrl-C, the script stops all programs.
"""

import argparse
import contextlib
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

HC = "myhc"
START_TIMEOUT = 30.0
"""Seconds that the relay or relay-client may take to start; each usually takes one or two."""
END_TIMEOUT = 5.0
"""Seconds that a program may take to exit after SIGTERM."""


class Relay(NamedTuple):
    """The environment variables for programs that use a relay."""

    agent: dict[str, str]
    """The variables for the job."""
    client: dict[str, str]
    """The variables for relay-client and its commands."""

    def commands(self, hc: str) -> str:
        """Return the lines to enter in another terminal."""
        variables = " ".join(f"{name}={shlex.quote(value)}" for name, value in self.client.items())
        return f"    export {variables}\n    relay-client --hc {hc} targets"


def main() -> int:
    """Run the command, and return its exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hc", default=HC, metavar="NAME", help="name of the hybrid connection (default: %(default)s)")
    parser.add_argument("--ports", default="5678", metavar="LIST", help="relay-client's ports (default: %(default)s)")
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="-- COMMAND")
    options = parser.parse_args()
    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    if not command:
        parser.error("no command given")
    with behind_relay(command, hc=options.hc, ports=options.ports) as job:
        return exit_status(job)


@contextlib.contextmanager
def behind_relay(
    command: list[str], *, ports: str, hc: str = HC, cwd: Path | None = None, client: Sequence[str] = ()
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a job with its own relay and relay-client; all three are stopped at the end of the block.

    Args:
        command: The job's command.
        ports: The value of relay-client's `--ports`.
        hc: The name of the hybrid connection.
        cwd: The job's working directory; by default, the current one.
        client: More options of relay-client.
    """
    end_in_order()
    with tempfile.TemporaryDirectory(prefix="relay-") as name, contextlib.ExitStack() as running:
        environment = clean_environment()
        relay = start_relay(Path(name), hc, ["--ports", ports, *client], environment, running)
        print(
            f"relay and relay-client are running on this machine; ports: {ports}.\n"
            "Press F5, or run these commands in another terminal:\n"
            f"{relay.commands(hc)}\n"
            f"The job: {shlex.join(command)}",
            flush=True,
        )
        yield running.enter_context(started(command, cwd=cwd or Path.cwd(), env=environment | relay.agent))


def exit_status(job: subprocess.Popen[bytes]) -> int:
    """Wait until a job ends, and return its exit status as a shell would."""
    status = job.wait()
    return status if status >= 0 else 128 - status


def end_in_order() -> None:
    """Make SIGINT and SIGTERM raise SystemExit, so that all started programs are stopped."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _frame: sys.exit(128 + number))


def clean_environment() -> dict[str, str]:
    """Return the current environment without RELAY_ variables, and with this Python's scripts folder first in PATH."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("RELAY_")}
    environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), environment.get("PATH", "")])
    return environment


def start_relay(
    folder: Path, name: str, options: Sequence[str], environment: Mapping[str, str], running: contextlib.ExitStack
) -> Relay:
    """Start a relay that has one hybrid connection, and start relay-client with these options; return their variables.

    Args:
        folder: The directory for keys and logs.
        name: The name of the hybrid connection.
        options: The options of relay-client.
        environment: The environment of both programs.
        running: Stops both programs when it is closed.
    """
    files, ready, log = folder / "relay", folder / "ready.json", folder / "programs.log"
    relay = [sys.executable, "-m", "relay_server"]
    arguments = ["init", str(files), "--hc", name, "--port", str(free_port())]
    subprocess.run([*relay, *arguments], check=True, env=environment, stdout=subprocess.DEVNULL)
    serve = [*relay, "serve", "--config", str(files / "relay.toml"), "--ready-file", str(ready)]
    process = running.enter_context(started(serve, cwd=folder, env=environment, log=log))
    wait_until(ready.exists, process, log)
    ca_file = json.loads(ready.read_text())["ca_file"]

    def access(side: str) -> dict[str, str]:
        return {"RELAY_CONNECTION_STRING_FILE": str(files / f"{name}.{side}.connection"), "RELAY_CA_FILE": ca_file}

    client = [sys.executable, "-m", "relay_client", "--hc", name, *options]
    process = running.enter_context(started(client, cwd=folder, env={**environment, **access("client")}, log=log))
    wait_until(lambda: "relay-client: ready" in log.read_text(), process, log)
    return Relay(agent=access("agent"), client=access("client"))


@contextlib.contextmanager
def started(
    command: list[str], *, cwd: Path, env: Mapping[str, str], log: Path | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Start a program in its own process group, and stop the whole group at the end of the block."""
    with contextlib.ExitStack() as files:
        output = files.enter_context(log.open("ab")) if log else None
        process = subprocess.Popen(
            command, cwd=cwd, env=env, stdout=output, stderr=output, stdin=subprocess.DEVNULL, start_new_session=True
        )
    try:
        yield process
    finally:
        for insist in (signal.SIGTERM, signal.SIGKILL):
            if process.poll() is None:
                os.killpg(process.pid, insist)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(END_TIMEOUT)


def wait_until(ready: Callable[[], bool], process: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until the program is ready; if it fails or takes too long, exit with the program's output."""
    deadline = time.monotonic() + START_TIMEOUT
    while not ready():
        if process.poll() is not None or time.monotonic() > deadline:
            sys.exit(log.read_text())
        time.sleep(0.02)


def free_port() -> int:
    """Return a free port on 127.0.0.1."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


if __name__ == "__main__":
    sys.exit(main())
