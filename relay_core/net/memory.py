"""Memory of transfers: the buffers that all connections read into, and a setting of the memory allocator.

The setting keeps freed memory in the process for reuse. By default, glibc returns free memory at the top of its heap to
the system when it exceeds 128 KiB. A bulk transfer allocates and frees that much a thousand times per second. Each
time, the kernel unmaps the pages and zeroes new ones, which took a sixth of the CPU time of client and agent. A relay
that passed on messages of 256 KiB needed 1.7 times its CPU time.
"""

from __future__ import annotations

import threading

READ_BUFFER_SIZE = 256 * 1024
"""Bytes: the amount that a fast writer puts into a socket while this process is busy."""

CIPHERTEXT_BUFFER_SIZE = 256 * 1024
"""Bytes; a transfer with half of that is not faster, and is interrupted twice as often for other connections."""

KEPT = 4 * 1024 * 1024
"""Size in bytes: a few times the data that one stream has in flight."""


def keep_freed_memory() -> None:
    """Permanently raise the threshold at which this process returns freed memory; without glibc, this has no effect.

    When a block with its own memory mapping is freed, glibc adjusts its thresholds: it then allocates blocks of that
    size on the heap and keeps twice as much free memory (mallopt(3), M_MMAP_THRESHOLD). So it is enough to allocate and
    free one such block. Its pages are never written.
    """
    bytes(KEPT)


_of_thread = threading.local()


def shared_read_buffer() -> memoryview:
    """Return the read buffer that all connections of a thread share; each read is processed before the next one."""
    return _shared_buffer("plaintext", READ_BUFFER_SIZE)


def shared_ciphertext_buffer() -> memoryview:
    """Return the buffer that all TLS connections of a thread read into; it is decrypted into the other one."""
    return _shared_buffer("ciphertext", CIPHERTEXT_BUFFER_SIZE)


def _shared_buffer(name: str, size: int) -> memoryview:
    if not hasattr(_of_thread, name):
        setattr(_of_thread, name, memoryview(bytearray(size)))
    buffer: memoryview = getattr(_of_thread, name)
    return buffer
