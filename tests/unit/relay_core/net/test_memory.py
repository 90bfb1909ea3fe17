"""Facts about the read buffer."""

from concurrent.futures import ThreadPoolExecutor

from relay_core.net.memory import READ_BUFFER_SIZE, shared_read_buffer


def test_connections_of_a_thread_share_a_buffer():
    """All connections of a thread have the same buffer, and another thread has its own."""
    with ThreadPoolExecutor(1) as executor:
        others = executor.submit(shared_read_buffer).result()
    assert shared_read_buffer() is shared_read_buffer()
    assert shared_read_buffer().obj is not others.obj
    assert READ_BUFFER_SIZE == len(others)
