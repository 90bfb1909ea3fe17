"""Facts about starting a node's agent."""

import contextlib
import os
import socket
import threading

import pytest

from relay_agent.node.directory import NodeDirectory
from relay_agent.node.in_job.reach_agent import connect_or_start
from relay_core.errors import ConfigurationError, RelayUnreachable
from tests.support.machine.deadline import DEADLINE


class Gate:
    """A lock with an event that is set when a thread tries to acquire it."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.lock = threading.Lock()

    def __enter__(self) -> None:
        self.reached.set()
        self.lock.acquire()

    def __exit__(self, *_exc_info: object) -> None:
        self.lock.release()


def test_nothing_is_started_past_a_gate(tmp_path, monkeypatch):
    """While another thread holds the gate, not even the directory is created."""
    monkeypatch.setattr("relay_agent.node.in_job.reach_agent.PATIENCE", 0.0)
    directory = NodeDirectory(tmp_path / "node", "name")
    gate = Gate()

    def try_to_connect() -> None:
        with contextlib.suppress(RelayUnreachable):
            connect_or_start(directory, gate)

    with gate.lock:
        connecting = threading.Thread(target=try_to_connect)
        connecting.start()
        assert gate.reached.wait(DEADLINE)
        assert not directory.root.exists()
        lock = directory.try_lock()
    assert lock is not None
    connecting.join()
    os.close(lock)


def test_impostor(tmp_path):
    """An agent in a directory that other users can access is not trusted: another user could impersonate it."""
    directory = NodeDirectory(tmp_path / "node", "name")
    directory.root.mkdir()
    directory.root.chmod(0o755)
    with socket.socket(socket.AF_UNIX) as impostor:
        impostor.bind(str(directory.socket_path))
        impostor.listen()
        with pytest.raises(ConfigurationError, match="is not a private directory of this user"):
            connect_or_start(directory, threading.Lock())
        connection, _ = impostor.accept()
        with connection:
            assert connection.recv(1) == b""
