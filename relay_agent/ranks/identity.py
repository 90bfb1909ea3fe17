"""Rank and related numbers of a process, read from the environment variables that its launcher has set.

    identify({"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "8"})                      rank 3/8   Open MPI
    identify({"RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "TORCHELASTIC_RUN_ID": "j"}) rank 3/8   torchrun
    identify({"RANK": "1", "WORLD_SIZE": "2"})                                                node 1/2   RANK of a node
    identify({})                                                                              single     no launcher

The first valid row of `relay_agent.ranks.launchers` is used. Values are untrusted text: a row with a value that is not
a number, or with a rank that is not less than the world size, is skipped; nothing here raises.

This module reads only the mapping that it is given. A process that a rank starts, such as a data loader, inherits all
these variables; the caller must distinguish it from the rank itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from relay_agent.ranks.launchers import TABLE, Numbers, Row, read_numbers
from relay_agent.ranks.logical_port import logical_port
from relay_agent.ranks.variables import Environment, Unusable, is_set, number_or_none
from relay_core.errors import ConfigurationError

__all__ = ["SINGLE", "ProcessIdentity", "explain", "identify"]

SINGLE = "single"
"""The launcher of a process that is not part of a distributed job."""


class ProcessIdentity(NamedTuple):
    """Position of a process in its job."""

    rank: int = 0
    """Number in the whole job; the logical port is the base port plus this number."""
    world_size: int | None = 1
    """Number of ranks in the job; None if the launcher does not set it."""
    local_rank: int | None = 0
    """Rank on its node; None if the launcher does not set it, which also applies to the next two fields."""
    local_size: int | None = 1
    node_rank: int | None = 0
    launcher: str = SINGLE
    """Name of the launcher whose variables were used."""
    run_id: str | None = None
    """Name of the job as shown by its platform, the same for all ranks."""
    restart: int = 0
    """Number of restarts of this rank by its launcher. torchrun counts the failures of each node, so the number differs
    between nodes."""
    node_level: bool = False
    """True if `rank` numbers nodes or containers. Several processes on this node would then have the same rank."""

    @property
    def is_master(self) -> bool:
        """Whether this is the first rank of the job."""
        return self.rank == 0

    @property
    def label(self) -> str:
        """The identity in messages: "rank 3/8", "node 1/2", "single"."""
        if self.launcher == SINGLE:
            return SINGLE
        total = "" if self.world_size is None else f"/{self.world_size}"
        return f"{'node' if self.node_level else 'rank'} {self.rank}{total}"


def identify(environ: Environment) -> ProcessIdentity:
    """Return the identity of the process that was started with these variables; "single" if no launcher set any."""
    valid = (candidate.identity for candidate in _candidates(environ) if candidate.identity)
    return next(valid, ProcessIdentity(run_id=_run_id(environ), restart=_restart(environ)))


def explain(environ: Environment, base_port: int) -> list[str]:
    """Return lines that explain the result of `identify`: which launcher was chosen, which were not, and why."""
    identity = identify(environ)
    lines = [_describe(identity)]
    for row, found, remark in _candidates(environ):
        values = " ".join(f"{name}={_printable(environ[name])}" for name in row.variables() if environ.get(name))
        if not found:
            lines.append(f"dropped: {row.launcher}, because {remark}: {values}")
        elif row.launcher == identity.launcher:
            lines.append(f"chosen: {row.launcher}{remark and f' ({remark})'}: {values}")
        else:
            lines.append(
                f"not used: {row.launcher} ({found.label}), because {identity.launcher} takes precedence: {values}"
            )
    if identity.launcher == SINGLE:
        lines.append(
            "chosen: none, because no launcher has set a rank; to define a rank, set RELAY_RANK and RELAY_WORLD_SIZE"
        )
    if identity.node_level:
        lines.append(
            "note: this rank identifies a node; if a node runs several processes, set RELAY_RANK in each of them"
        )
    try:
        port = f"logical port: {base_port} + {identity.rank} = {logical_port(base_port, identity.rank)}"
    except ConfigurationError as error:
        port = f"no logical port: {error.sentence}"
    return [*lines, port]


def _describe(identity: ProcessIdentity) -> str:
    """Return the identity as one line."""
    parts = [identity.label]
    if identity.local_rank is not None:
        total = "" if identity.local_size is None else f"/{identity.local_size}"
        parts.append(f"local rank {identity.local_rank}{total}")
    if identity.node_rank is not None and not identity.node_level:
        parts.append(f"node {identity.node_rank}")
    if identity.run_id is not None:
        parts.append(f"run {identity.run_id}")
    if identity.restart:
        parts.append(f"restart {identity.restart}")
    return ", ".join(parts)


_MAX_TEXT = 100
"""Maximum number of characters in a value that `explain` shows; a longer run name is ignored."""


class _Candidate(NamedTuple):
    """A launcher whose variables are set, and the identity that they define."""

    row: Row
    identity: ProcessIdentity | None
    """None if the values are invalid."""
    remark: str
    """Why the values are invalid, or a restriction of the identity; may be empty."""


def _candidates(environ: Environment) -> Iterator[_Candidate]:
    """Yield the launchers whose variables are set, in order of precedence."""
    for row in TABLE:
        if all(is_set(environ, name) for name in row.probes()):
            try:
                numbers = _checked(row.read(environ) if row.read else read_numbers(row.numbers, environ))
            except Unusable as reason:
                yield _Candidate(row, None, _printable(str(reason)))
            else:
                found = ProcessIdentity(*numbers[:5], row.launcher, _run_id(environ), _restart(environ), row.node_level)
                yield _Candidate(row, found, numbers.remark)


def _checked(numbers: Numbers) -> Numbers:
    """Return consistent numbers: node-local numbers that contradict the other numbers become None.

    Raises:
        Unusable: the rank is not less than the world size.
    """
    rank, world_size, local_rank, local_size, node_rank, _ = numbers
    if world_size is not None and rank >= world_size:
        raise Unusable(f"rank {rank} is not less than the world size {world_size}")
    if local_size is not None and not 0 < local_size <= (world_size or local_size):
        local_size = None
    if local_rank is not None and local_rank > (rank if local_size is None else min(rank, local_size - 1)):
        local_rank = local_size = None
    if node_rank is not None and world_size is not None and node_rank >= world_size:
        node_rank = None
    if node_rank is None and world_size and local_size and local_rank == rank % local_size:
        # The default of the launchers: each node has the same number of ranks, and these are consecutive.
        node_rank = rank // local_size if world_size % local_size == 0 else None
    return numbers._replace(local_rank=local_rank, local_size=local_size, node_rank=node_rank)


def _printable(value: str) -> str:
    """Return a value as one short line without control characters."""
    text = value if value.isprintable() else ascii(value)
    return text if len(text) <= _MAX_TEXT else text[:_MAX_TEXT] + "..."


_RUN_IDS = (
    "RELAY_RUN_ID", "AZUREML_RUN_ID", "SLURM_JOB_ID", "PAI_JOB_NAME", "SKYPILOT_TASK_ID", "DSTACK_RUN_NAME",
    "AWS_BATCH_JOB_ID", "TRAINING_JOB_NAME", "LSB_JOBID", "PBS_JOBID", "RAY_JOB_ID", "TORCHELASTIC_RUN_ID",
    "AZ_BATCH_JOB_ID", "PMIX_NAMESPACE", "I_MPI_HYDRA_UUID",
)  # fmt: skip
"""Platforms come before launchers, because users know the name that their portal or queue shows."""
_RESTARTS = ("TORCHELASTIC_RESTART_COUNT", "SLURM_RESTART_COUNT")


def _run_id(environ: Environment) -> str | None:
    for name in _RUN_IDS:
        text = environ.get(name, "").strip()
        # torchrun's default is the word "none".
        if text and text.isprintable() and len(text) <= _MAX_TEXT and text.lower() != "none":
            return text
    # The Pods of a Kubernetes Indexed Job have the host names <job>-<index>.
    job, dash, index = environ.get("HOSTNAME", "").rpartition("-")
    return job if dash and job.isprintable() and index == environ.get("JOB_COMPLETION_INDEX") else None


def _restart(environ: Environment) -> int:
    return next((count for name in _RESTARTS if (count := number_or_none(environ, name)) is not None), 0)
