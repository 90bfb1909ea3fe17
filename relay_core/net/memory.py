"""Memory allocator setting: keeps freed memory in the process for reuse.

By default glibc returns a freed block at the top of its heap to the system once it has 128 KiB. A stream with bulk data
allocates and frees that much a thousand times a second; each time the kernel unmaps the pages and zeroes new ones,
which took a sixth of the processor time of client and agent.
"""

from __future__ import annotations

__all__ = ["keep_freed_memory"]

KEPT = 4 * 1024 * 1024
"""Bytes: a few times the data that one stream has in flight."""


def keep_freed_memory() -> None:
    """Permanently raise the size from which this process returns freed memory; without glibc this has no effect.

    glibc adjusts its limits when a block is freed that was large enough for a mapping of its own: from then on it
    allocates blocks of that size on the heap, and keeps twice as much free memory (mallopt(3), M_MMAP_THRESHOLD). So it
    is enough to allocate and free one such block. Its pages are never touched.
    """
    bytes(KEPT)
