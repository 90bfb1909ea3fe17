"""Clients that watch code, and steps of optimizers."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.jobs.loaded_module import Loaded
from tests.support.jobs.watching import Client

Watched = Callable[[str], tuple[Loaded, Client]]


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    """Loads a text from a file, and returns the module and a client."""
    clients: list[Client] = []

    def load(source: str) -> tuple[Loaded, Client]:
        loaded = Loaded(tmp_path / "train.py")
        loaded.execute(source)
        clients.append(Client(loaded.path))
        return loaded, clients[-1]

    yield load
    for client in clients:
        client.table.forget()
        client.table._engine.set_hooks([])
    gc.collect()


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    """A client of watches of optimizers; at the end, torch has no hook of theirs."""
    found = Client(tmp_path / "train.py")
    yield found
    found.table.forget()
    found.table._steps.set_hooks([])
    assert found.table._steps._registered is None
