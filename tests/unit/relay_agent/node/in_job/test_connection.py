"""Facts about the socket to the agent, whose descriptor the job may close and use for a file."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from relay_agent.node.in_job.connection import AgentConnection


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """The job's and the agent's ends."""
    ends = socket.socketpair()
    yield ends
    for end in ends:
        end.close()


def file_in_place_of(number: int, path: Path) -> int:
    """Close a descriptor as the job might, and open a file that gets its number."""
    file = os.open(path, os.O_RDWR | os.O_CREAT)
    os.dup2(file, number)
    os.close(file)
    return number


def test_messages(pair: tuple[socket.socket, socket.socket]) -> None:
    """Messages are separated by newlines, however the bytes are cut; what has no end is dropped."""
    ours, theirs = pair
    connection = AgentConnection(ours)
    assert connection.send(b"hello\n")
    assert b"hello\n" == theirs.recv(100)
    lines = connection.lines()
    theirs.sendall(b"one\ntw")
    assert b"one" == next(lines)
    theirs.sendall(b"o\nthree")
    theirs.shutdown(socket.SHUT_WR)
    assert [b"two"] == list(lines)
    assert connection.is_own
    assert not connection.is_open()
    connection.close()


def test_number_that_is_the_jobs_file(pair: tuple[socket.socket, socket.socket], tmp_path: Path) -> None:
    """Nothing is read from the job's file, nothing is written to it, and it stays open."""
    connection = AgentConnection(pair[0])
    assert connection.is_open()
    number = file_in_place_of(pair[0].fileno(), tmp_path / "file")
    os.write(number, b"the job's")
    os.lseek(number, 0, os.SEEK_SET)
    assert not connection.send(b"ours\n")
    assert [] == list(connection.lines())
    assert not connection.is_open()
    assert not connection.is_own
    connection.close()
    assert b"the job's" == os.read(number, 100)
    os.close(number)


def test_number_that_is_closed(pair: tuple[socket.socket, socket.socket]) -> None:
    """A connection whose descriptor the job has closed is lost, and can be closed twice."""
    connection = AgentConnection(pair[0])
    os.close(pair[0].fileno())
    assert not connection.send(b"ours\n")
    assert [] == list(connection.lines())
    connection.close()
    connection.close()
    assert not connection.is_own


def test_time_out_of_the_job(pair: tuple[socket.socket, socket.socket]) -> None:
    """A default time-out of the job does not apply."""
    pair[0].settimeout(0.01)
    AgentConnection(pair[0])
    assert pair[0].gettimeout() is None


def test_agent_that_is_gone(pair: tuple[socket.socket, socket.socket]) -> None:
    """A message to an agent that has exited is not sent, and raises nothing."""
    connection = AgentConnection(pair[0])
    pair[1].close()
    assert not connection.send(b"ours\n")
    connection.close()
