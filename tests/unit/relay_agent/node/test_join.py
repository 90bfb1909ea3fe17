"""Facts about starting a node's agent."""

import contextlib
import os
import threading

from relay_agent.node.directory import NodeDirectory
from relay_agent.node.join import join
from relay_core.errors import RelayUnreachable


def test_nothing_is_started_past_a_gate(tmp_path, monkeypatch):
    """While somebody else holds the gate, an agent is neither started nor begun to be."""
    monkeypatch.setattr("relay_agent.node.join.PATIENCE", 0.0)
    directory = NodeDirectory(tmp_path / "node", "name")
    gate = threading.Lock()

    def try_to_join() -> None:
        with contextlib.suppress(RelayUnreachable):
            join(directory, gate)

    with gate:
        joining = threading.Thread(target=try_to_join)
        joining.start()
        joining.join(0.2)
        assert joining.is_alive()
        assert [] == list(directory.root.iterdir())
        lock = directory.try_lock()
    assert lock is not None
    joining.join()
    os.close(lock)
