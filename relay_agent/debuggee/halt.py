"""Stops the running program at a place of our choice: what `debugpy.breakpoint()` does, with the caller's frame."""

from __future__ import annotations

from types import FrameType

from relay_agent.debuggee import debugger

__all__ = ["stop_at"]


def stop_at(frame: FrameType) -> None:
    """Stop in `frame`, on its next line, if a debugger is attached.

    `debugpy.breakpoint()` stops in whoever called it, which here would be a function of this library.
    """
    if not debugger.is_attached():
        return
    import pydevd  # noqa: PLC0415 - an attached debugger has imported it

    pydevd.settrace(suspend=True, trace_only_current_thread=True, patch_multiprocessing=False, stop_at_frame=frame)
