"""What NCCL RAS reports about the communicators of a job, as part of the response to the request `collectives`."""

from __future__ import annotations

from typing import NamedTuple

from relay_core.agent_api.values import Clean, as_is, count, items, mapping, objects, text

__all__ = ["MAX_COMMUNICATORS", "MAX_REMARKS", "RasCommunicator", "RasStatus"]

MAX_COMMUNICATORS = 64
"""Maximum number of communicators in a response."""
MAX_REMARKS = 16
"""Maximum number of sentences about one communicator."""


class RasCommunicator(NamedTuple):
    """One communicator that RAS reports, such as one whose ranks have launched different numbers of operations."""

    name: str
    """Its hash, as NCCL prints it."""
    size: int = 0
    """Number of its ranks; 0 if unknown."""
    remarks: tuple[str, ...] = ()
    """What RAS reports about it, one sentence each."""

    def encode(self) -> dict[str, object]:
        """Return one element of `communicators`."""
        return {"name": self.name, "size": self.size, "remarks": list(self.remarks)}

    @classmethod
    def parse(cls, value: object, clean: Clean = as_is) -> RasCommunicator:
        """Read one element of `communicators`."""
        fields = mapping(value)
        remarks = (text(remark, clean) for remark in items(fields.get("remarks"))[:MAX_REMARKS])
        return cls(text(fields.get("name"), clean), count(fields.get("size")) or 0, tuple(filter(None, remarks)))


class RasStatus(NamedTuple):
    """The answer of NCCL RAS, which is the same in each process of a job."""

    version: str = ""
    """The version of NCCL."""
    communicators: tuple[RasCommunicator, ...] = ()
    """The communicators that RAS reports, such as those whose ranks have launched different numbers of operations."""
    error: str = ""
    """Why the answer of NCCL RAS could not be read, in one sentence."""

    def encode(self) -> dict[str, object]:
        """Return the field `ras`."""
        communicators = [communicator.encode() for communicator in self.communicators]
        fields: dict[str, object] = {"version": self.version, "communicators": communicators}
        return fields | {"error": self.error} if self.error else fields

    @classmethod
    def parse(cls, value: object, clean: Clean = as_is) -> RasStatus:
        """Read the field `ras`."""
        fields = mapping(value)
        found = objects(fields.get("communicators"))
        return cls(
            version=text(fields.get("version"), clean),
            communicators=tuple(RasCommunicator.parse(one, clean) for one in found[:MAX_COMMUNICATORS]),
            error=text(fields.get("error"), clean),
        )
