"""Facts about the threads that this library starts in the job's process."""

import queue
import threading
from typing import Any

from relay_agent.job.helper_thread import start_helper
from tests.support.machine.deadline import DEADLINE


def test_a_helper_has_the_attributes_of_pydevds_own_threads() -> None:
    """It does not keep the job from exiting, and pydevd recognizes it before it runs."""
    found: queue.SimpleQueue[Any] = queue.SimpleQueue()
    start_helper(lambda: found.put(threading.current_thread()), "relay-agent test")
    thread = found.get(timeout=DEADLINE)
    assert ("relay-agent test", True) == (thread.name, thread.daemon)
    assert thread.pydev_do_not_trace
    assert thread.is_pydev_daemon_thread
    thread.join(DEADLINE)
    assert not thread.is_alive()
