"""A debug session with plain debugpy: starts a program, and sends and receives messages of the protocol.

The scripts beside this file use it. It needs nothing but debugpy.
"""

import contextlib
import json
import os
import platform
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import debugpy

LISTEN = "import debugpy; print(debugpy.listen(('127.0.0.1', 0))[1], flush=True); debugpy.wait_for_client()\n"
"""The first line of each program. The debugger needs no other."""
HERE = "# breakpoint"
MARK = "DEBUGPY_SESSION_DIRECTORY"
PATIENCE = 30.0
"""Seconds after which a message that is expected counts as missing."""
SILENCE = 5.0
"""Seconds after which a message that should not be missing counts as missing."""


class Session:
    """A program that stops at its line `# breakpoint`, and an editor that is attached to it."""

    def __init__(self, program: str) -> None:
        self._directory = tempfile.TemporaryDirectory()
        self.path = Path(self._directory.name) / "program.py"
        self.path.write_text(LISTEN + program)
        self.job = subprocess.Popen(
            [sys.executable, "-X", "frozen_modules=off", str(self.path)],
            env={**os.environ, MARK: self._directory.name},
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.job.stdout
        self._socket = socket.create_connection(("127.0.0.1", int(self.job.stdout.readline())))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._received = b""
        self._events: list[dict] = []
        self._sequence = 0

    def __enter__(self) -> "Session":
        lines = self.path.read_text().splitlines()
        self.request("initialize", adapterID="script", clientID="script", pathFormat="path")
        attached = self.send("attach", justMyCode=False)
        self.event("initialized")
        self.set_breakpoints(*(number for number, line in enumerate(lines, 1) if HERE in line))
        self.request("configurationDone")
        self.response(attached)
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()
        self.job.kill()
        self.job.wait()
        self.job.stdout.close()
        self._kill_adapter()
        self._directory.cleanup()

    def _kill_adapter(self) -> None:
        # An adapter that no longer responds would stay. It has a session of its own, but the environment of the job.
        for environment in Path("/proc").glob("[0-9]*/environ"):
            with contextlib.suppress(OSError):
                if os.fsencode(f"{MARK}={self._directory.name}") in environment.read_bytes():
                    os.kill(int(environment.parent.name), signal.SIGKILL)

    def set_breakpoints(self, *lines: int) -> None:
        """Replace the breakpoints of the program."""
        self.request("setBreakpoints", source={"path": str(self.path)}, breakpoints=[{"line": line} for line in lines])

    def stopped(self) -> int:
        """Wait until the program stops, and return the thread that is at the breakpoint."""
        return self.event("stopped")["threadId"]

    def request(self, command: str, within: float = PATIENCE, **arguments: object) -> dict:
        """Send a request, and return its response."""
        return self.response(self.send(command, **arguments), within)

    def send(self, command: str, **arguments: object) -> int:
        """Send a request, and return its number."""
        self._sequence += 1
        message = {"seq": self._sequence, "type": "request", "command": command, "arguments": arguments}
        body = json.dumps(message).encode()
        self._socket.sendall(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
        return self._sequence

    def response(self, number: int, within: float = PATIENCE) -> dict:
        """Wait for the response to a request."""
        deadline = time.monotonic() + within
        while True:
            message = self._next(deadline)
            if message["type"] == "response" and message["request_seq"] == number:
                return message
            self._keep(message)

    def event(self, name: str, within: float = PATIENCE) -> dict:
        """Wait for an event, and return its body; an event is returned once."""
        deadline = time.monotonic() + within
        while True:
            for event in self._events:
                if event["event"] == name:
                    self._events.remove(event)
                    return event.get("body", {})
            self._keep(self._next(deadline))

    def _keep(self, message: dict) -> None:
        if message["type"] == "event":
            self._events.append(message)

    def _next(self, deadline: float) -> dict:
        while True:
            header, separator, rest = self._received.partition(b"\r\n\r\n")
            length = int(header.rpartition(b":")[2]) if separator else 0
            if separator and len(rest) >= length:
                self._received = rest[length:]
                return json.loads(rest[:length])
            self._socket.settimeout(max(0.001, deadline - time.monotonic()))
            data = self._socket.recv(1 << 20)
            if not data:
                raise ConnectionError("the debug adapter has closed the connection")
            self._received += data


def answer(session: Session, command: str, **arguments: object) -> str:
    """Send a request, print what becomes of it, and return that: `success`, `failure` or `no response`."""
    try:
        outcome = "success" if session.request(command, SILENCE, **arguments)["success"] else "failure"
    except (TimeoutError, ConnectionError):
        outcome = "no response"
    print(f"{command}: {outcome}")
    return outcome


def conclude(*, is_there: bool) -> None:
    """Print whether the problem was seen, and with which versions."""
    system = f"{platform.system()} {platform.machine()}"
    print(f"debugpy {debugpy.__version__}, Python {platform.python_version()}, {system}")
    print("the problem is there" if is_there else "the problem is gone")
