"""Keeps memory that was freed, for what comes next.

glibc hands a freed block at the top of its heap back to the system once it has 128 KiB. A stream that carries bulk
frees and needs that much a thousand times a second, and each time the kernel takes pages away and clears new ones: a
sixth of the processor time of client and agent.
"""

from __future__ import annotations

__all__ = ["keep_freed_memory"]

KEPT = 4 * 1024 * 1024
"""A few times what one stream has under way."""


def keep_freed_memory() -> None:
    """Raise the size from which freed memory is returned, in this process and for good; harmless where it is not glibc.

    glibc does so by itself when a block is freed that was large enough to be mapped on its own: it then maps no block
    of that size any more, and keeps twice as much (mallopt(3), M_MMAP_THRESHOLD). The block's pages are never touched.
    """
    bytes(KEPT)
