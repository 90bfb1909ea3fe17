"""What NCCL RAS reports about the communicators of a job, as part of the response to the request `collectives`."""

from __future__ import annotations

from typing import Annotated, NamedTuple

from relay_core.records import Wire

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
    remarks: Annotated[tuple[str, ...], Wire(most=MAX_REMARKS)] = ()
    """What RAS reports about it, one sentence each."""


class RasStatus(NamedTuple):
    """The answer of NCCL RAS, which is the same in each process of a job."""

    version: str = ""
    """The version of NCCL."""
    communicators: Annotated[tuple[RasCommunicator, ...], Wire(most=MAX_COMMUNICATORS)] = ()
    """The communicators that RAS reports, such as those whose ranks have launched different numbers of operations."""
    error: str = ""
    """Why the answer of NCCL RAS could not be read, in one sentence."""
