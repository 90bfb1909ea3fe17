"""How a target ended: its exit status or signal, if its agent could determine them."""

from __future__ import annotations

from dataclasses import dataclass

from relay_core.agent_api.values import Clean, as_is, count, mapping, port, text, without_missing

__all__ = ["Ending"]

MAX_STATUS = 255
MAX_SIGNAL = 64


@dataclass(frozen=True)
class Ending:
    """The end of one process. `status` and `signal` are both None if the agent could not read them."""

    port: int
    """The logical port of the process."""
    pid: int | None = None
    status: int | None = None
    """Its exit status."""
    signal: int | None = None
    """The signal that killed it."""
    error: str = ""
    """Its uncaught exception."""
    replaced_by: str = ""
    """The program with which the process has replaced itself (exec), if it has not ended but did that."""
    is_final: bool = True
    """False while the process is still exiting; its status may follow."""

    def encode(self) -> dict[str, object]:
        """Return one element of `endings`; unknown fields are omitted."""
        fields: dict[str, object] = {
            "port": self.port,
            "pid": self.pid,
            "status": self.status,
            "signal": self.signal,
            "error": self.error or None,
            "replaced_by": self.replaced_by or None,
            "exiting": None if self.is_final else True,
        }
        return without_missing(fields)

    @classmethod
    def parse(cls, value: object, clean: Clean = as_is) -> Ending | None:
        """Read one element of `endings`; return None if its port is missing or invalid."""
        fields = mapping(value)
        number = port(fields.get("port"))
        if number is None:
            return None
        return cls(
            port=number,
            pid=count(fields.get("pid")),
            status=_up_to(MAX_STATUS, fields.get("status")),
            signal=_up_to(MAX_SIGNAL, fields.get("signal")),
            error=text(fields.get("error"), clean),
            replaced_by=text(fields.get("replaced_by"), clean),
            is_final=fields.get("exiting") is not True,
        )


def _up_to(limit: int, value: object) -> int | None:
    number = count(value)
    return number if number is not None and number <= limit else None
