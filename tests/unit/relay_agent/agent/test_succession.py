"""Facts about the record by which an agent knows that it replaces others."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from relay_agent.agent.succession import MAX_PREDECESSORS, Succession


@pytest.fixture
def lock(tmp_path: Path) -> Iterator[int]:
    """A lock file without content, as the first agent of a node finds it."""
    descriptor = os.open(tmp_path / "name.lock", os.O_RDWR | os.O_CREAT)
    yield descriptor
    os.close(descriptor)


def test_the_first_agent_replaces_nobody(lock: int) -> None:
    """A new lock file names no agent, and nothing is known about the settings."""
    succession = Succession(lock)
    assert ((), False) == (succession.predecessors, succession.has_listened)


def test_an_agent_without_a_lock_replaces_nobody() -> None:
    """Agents of fixed ports have no lock; each has an id of its own."""
    one, two = Succession(), Succession()
    one.listening()
    assert () == one.predecessors == two.predecessors
    assert one.agent_id != two.agent_id


def test_an_agent_names_those_that_were_killed(lock: int) -> None:
    """It names all of them, since a client may have missed the ones between."""
    one, two = Succession(lock), Succession(lock)
    assert (one.agent_id, two.agent_id) == Succession(lock).predecessors


def test_an_agent_knows_that_a_predecessor_has_listened(lock: int) -> None:
    """Once one has listened, all later ones know that the settings are right."""
    one = Succession(lock)
    assert not Succession(lock).has_listened
    one.listening()
    assert [True, True] == [Succession(lock).has_listened for _ in range(2)]


def test_the_record_is_bounded(lock: int) -> None:
    """A job whose agents are killed all day has a short announcement."""
    agents = [Succession(lock).agent_id for _ in range(3 * MAX_PREDECESSORS)]
    assert tuple(agents[-MAX_PREDECESSORS:]) == Succession(lock).predecessors


@pytest.mark.parametrize("content", [b"{", b"[]", b'{"agents": 1}', b'{"agents": [1, null]}', b"\xff"])
def test_a_damaged_record_is_ignored(lock: int, content: bytes) -> None:
    """What an agent wrote while it was killed names nobody, and is replaced."""
    os.pwrite(lock, content, 0)
    damaged = Succession(lock)
    assert ((), False) == (damaged.predecessors, damaged.has_listened)
    assert (damaged.agent_id,) == Succession(lock).predecessors


def test_a_record_that_cannot_be_written(tmp_path: Path) -> None:
    """A full disk, or a file that cannot be written for another reason, does not end the agent."""
    path = tmp_path / "name.lock"
    path.touch()
    descriptor = os.open(path, os.O_RDONLY)
    Succession(descriptor).listening()
    os.close(descriptor)
    assert b"" == path.read_bytes()
