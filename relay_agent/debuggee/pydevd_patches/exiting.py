"""Patch that lets a process exit even if debugpy's adapter exited while pydevd was starting in the process.

pydevd keeps a process alive until its writer thread has sent all messages. If the connection to the adapter breaks, the
writer thread exits and leaves its last messages in the queue. A debugger that has already started is then shut down
completely. However, a debugger that is still starting creates the thread that keeps the process alive
(`CheckAliveThread`), and that thread waits without limit for the queue to become empty.
"""

from __future__ import annotations

from typing import Any

from relay_agent.debugpy_internals.table import EXITING

__all__ = ["install"]


def install() -> None:
    """Patch `WriterThread.empty` in this process and its forked children."""
    if not EXITING.is_available():
        return
    from _pydevd_bundle.pydevd_comm import WriterThread  # noqa: PLC0415 - in debug runs only

    is_queue_empty = WriterThread.empty

    def is_empty_or_ended(writer: Any) -> bool:
        """Return whether nothing is left to send, or nothing can be sent any more."""
        if not EXITING.is_off:
            with EXITING.guarded():
                if writer.ident is not None and not writer.is_alive():
                    return True
        return bool(is_queue_empty(writer))

    WriterThread.empty = is_empty_or_ended
