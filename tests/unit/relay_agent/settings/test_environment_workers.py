"""Which processes are workers of a registered process."""

import multiprocessing.spawn
import sys

import pytest

from relay_agent.settings.environment import is_worker, register_environment
from relay_agent.settings.ranks import ProcessIdentity


def test_a_worker_has_the_port_of_the_process_that_started_it(monkeypatch: pytest.MonkeyPatch):
    """Neither the registered process itself, nor a child with its own port, nor a program that it has started."""
    registered = register_environment(ProcessIdentity(), 100, 5678)
    assert not is_worker(registered, 101, 5678)
    monkeypatch.setattr(sys, "orig_argv", [sys.executable, *multiprocessing.spawn.get_command_line(pipe_handle=3)[1:]])
    assert is_worker(registered, 101, 5678)
    assert not is_worker(registered, 101, 5679)
    assert not is_worker(registered, 100, 5678)
    assert not is_worker({}, 101, 5678)
