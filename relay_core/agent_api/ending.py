"""How a target ended: its exit status or signal, if its agent could determine them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from relay_core.records import Port, Wire

__all__ = ["Ending"]

MAX_STATUS = 255
MAX_SIGNAL = 64


@dataclass(frozen=True)
class Ending:
    """The end of one process. `status` and `signal` are both None if the agent could not read them."""

    port: Port
    """The logical port of the process."""
    pid: int | None = None
    status: Annotated[int | None, Wire(most=MAX_STATUS)] = None
    """Its exit status."""
    signal: Annotated[int | None, Wire(most=MAX_SIGNAL)] = None
    """The signal that killed it."""
    error: str = ""
    """Its uncaught exception."""
    replaced_by: str = ""
    """The program with which the process has replaced itself (exec), if it has not ended but did that."""
    is_final: Annotated[
        bool, Wire("exiting", read=lambda value, _clean: value is not True, write=lambda value: not value)
    ] = True
    """False while the process is still exiting; its status may follow."""
