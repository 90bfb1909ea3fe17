"""Facts about the read buffers."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from relay_core.net.memory import READ_BUFFER_SIZE, shared_ciphertext_buffer, shared_read_buffer


@pytest.mark.parametrize("shared", [shared_read_buffer, shared_ciphertext_buffer])
def test_connections_of_a_thread_share_a_buffer(shared: Callable[[], memoryview]):
    """All connections of a thread have the same buffer, and another thread has its own."""
    with ThreadPoolExecutor(1) as executor:
        others = executor.submit(shared).result()
    assert shared() is shared()
    assert shared().obj is not others.obj
    assert len(shared()) == len(others)


def test_ciphertext_and_plaintext_have_different_buffers():
    """What is decrypted does not overwrite its source."""
    assert shared_read_buffer().obj is not shared_ciphertext_buffer().obj
    assert READ_BUFFER_SIZE == len(shared_read_buffer())
