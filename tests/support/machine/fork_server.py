"""Processes that have imported what takes long, and fork for each use of it.

Such a server runs with a Unix socket as its standard input. One connection is one use, and begins with a line of JSON.
"""

import contextlib
import gc
import json
import os
import signal
import socket
import subprocess
from pathlib import Path


@contextlib.contextmanager
def fork_server(folder: Path, python: str | Path, script: Path, env: dict[str, str]):
    """Run a script that calls `serve`, and yield the address of its socket; it can import this project."""
    address = str(folder / "forks.sock")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen()
        root = str(Path(__file__).parents[3])
        process = subprocess.Popen([str(python), str(script)], stdin=listener, env={**env, "PYTHONPATH": root})
    try:
        yield address
    finally:
        process.terminate()
        process.wait()


def serve():
    """Fork a process for each connection, and return in it, with the connection and the object of its line."""
    listener = socket.socket(fileno=0)
    gc.collect()
    gc.freeze()  # or each child would touch, and so copy, all of it
    signal.signal(signal.SIGCHLD, _reap)
    while True:
        connection, _ = listener.accept()
        if os.fork():
            connection.close()
            continue
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        listener.detach()  # `prepare` gives its descriptor to another file
        with connection.makefile("r") as stream:
            return connection, json.loads(stream.readline())


def prepare(out: str, err: str, env: dict[str, str], cwd: str) -> None:
    """Give this process other files, another environment and another directory."""
    append = os.O_WRONLY | os.O_APPEND | os.O_CREAT
    for number, path, flags in ((0, os.devnull, os.O_RDONLY), (1, out, append), (2, err, append)):
        file = os.open(path, flags, 0o644)
        os.dup2(file, number)
        os.close(file)
    os.environ.clear()
    os.environ.update(env)
    os.chdir(cwd)


def _reap(*_: object) -> None:
    """Take leave of the processes that have ended, at once: a test looks for what it has left behind."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
