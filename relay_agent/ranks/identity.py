"""Which process of a distributed job this is, told by the variables that its launcher has set.

    identify({"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "8"})                      rank 3/8   Open MPI
    identify({"RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "TORCHELASTIC_RUN_ID": "j"}) rank 3/8   torchrun
    identify({"RANK": "1", "WORLD_SIZE": "2"})                                                node 1/2   RANK of a node
    identify({})                                                                              single     no launcher

The first valid row of `relay_agent.ranks.launchers` wins. Values are untrusted text: a row whose value is not a number,
or whose rank is not below its world size, is skipped; nothing here raises.

This module knows no framework, no process and no environment but the mapping that it is given. A process that a rank
starts inherits all these variables: that it is a helper and not the rank itself is for the caller to know.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from relay_agent.ranks.launchers import TABLE, Numbers, Row, read_numbers
from relay_agent.ranks.variables import Environment, Unusable, is_set, number_or_none

__all__ = ["SINGLE", "ProcessIdentity", "explain", "identify"]

SINGLE = "single"
"""The launcher of a process that nobody distributed."""


class ProcessIdentity(NamedTuple):
    """The place of a process in its job."""

    rank: int = 0
    """Number in the whole job; the logical port is the base port + this."""
    world_size: int | None = 1
    """How many ranks the job has; None where the launcher does not say."""
    local_rank: int | None = 0
    """Number on its node; None where the launcher does not say, and so for the three below."""
    local_size: int | None = 1
    node_rank: int | None = 0
    launcher: str = SINGLE
    """The launcher that says so, as people call it."""
    run_id: str | None = None
    """Name of the job as its platform shows it; the same for all ranks."""
    restart: int = 0
    """How often the launcher has started this rank again. torchrun counts the crashes of a node, so nodes differ."""
    node_level: bool = False
    """Whether `rank` counts nodes (or containers): more than one process on this node would have the same rank."""

    @property
    def is_master(self) -> bool:
        """Whether this is the first rank of the job."""
        return self.rank == 0

    @property
    def label(self) -> str:
        """What people read: "rank 3/8", "node 1/2", "single"."""
        if self.launcher == SINGLE:
            return SINGLE
        of_all = "" if self.world_size is None else f"/{self.world_size}"
        return f"{'node' if self.node_level else 'rank'} {self.rank}{of_all}"


def identify(environ: Environment) -> ProcessIdentity:
    """Return the identity of the process that was started with these variables; it is "single" where none tells."""
    named = (verdict.identity for verdict in _verdicts(environ) if verdict.identity)
    return next(named, ProcessIdentity(run_id=_run_id(environ), restart=_restart(environ)))


def explain(environ: Environment, base_port: int) -> list[str]:
    """Return the lines that tell how `identify` decides: what won, what lost and why, by which variables."""
    identity = identify(environ)
    lines = [_describe(identity)]
    for row, found, remark in _verdicts(environ):
        seen = " ".join(f"{name}={_shown(environ[name])}" for name in row.variables() if environ.get(name))
        if not found:
            lines.append(f"dropped: {row.launcher}, because {remark}: {seen}")
        elif row.launcher == identity.launcher:
            lines.append(f"chosen: {row.launcher}{remark and f' ({remark})'}: {seen}")
        else:
            lines.append(
                f"passed over: {row.launcher} ({found.label}), because {identity.launcher} comes first: {seen}"
            )
    if identity.launcher == SINGLE:
        lines.append("chosen: none, for no launcher has told a rank; RELAY_RANK and RELAY_WORLD_SIZE can")
    if identity.node_level:
        lines.append("note: this counts nodes; of several processes on a node, RELAY_RANK can tell which is which")
    port = base_port + identity.rank
    beyond = "" if port <= _LAST_PORT else f", which is beyond {_LAST_PORT}"
    return [*lines, f"logical port: {base_port} + {identity.rank} = {port}{beyond}"]


def _describe(identity: ProcessIdentity) -> str:
    """Return the identity in one line."""
    parts = [identity.label]
    if identity.local_rank is not None:
        of_all = "" if identity.local_size is None else f"/{identity.local_size}"
        parts.append(f"local rank {identity.local_rank}{of_all}")
    if identity.node_rank is not None and not identity.node_level:
        parts.append(f"node {identity.node_rank}")
    if identity.run_id is not None:
        parts.append(f"run {identity.run_id}")
    if identity.restart:
        parts.append(f"restart {identity.restart}")
    return ", ".join(parts)


_LAST_PORT = 65535
_LONGEST_TEXT = 100
"""Characters of a value that a line of `explain` shows, and of a run's name."""


class _Verdict(NamedTuple):
    """What became of a row whose launcher was at work."""

    row: Row
    identity: ProcessIdentity | None
    remark: str
    """Why there is no identity, or what to know about it."""


def _verdicts(environ: Environment) -> Iterator[_Verdict]:
    """Yield the rows whose launchers were at work, the one that counts most first."""
    for row in TABLE:
        if all(is_set(environ, name) for name in row.probes()):
            try:
                numbers = _checked(row.read(environ) if row.read else read_numbers(row.numbers, environ))
            except Unusable as reason:
                yield _Verdict(row, None, str(reason))
            else:
                place = ProcessIdentity(*numbers[:5], row.launcher, _run_id(environ), _restart(environ), row.node_level)
                yield _Verdict(row, place, numbers.remark)


def _checked(numbers: Numbers) -> Numbers:
    """Return the numbers without those of the node that contradict the others; the rank must be one of its world."""
    rank, world_size, local_rank, local_size, node_rank, _ = numbers
    if world_size is not None and rank >= world_size:
        raise Unusable(f"there is no rank {rank} among {world_size}")
    if local_size is not None and not 0 < local_size <= (world_size or local_size):
        local_size = None
    if local_rank is not None and local_rank > (rank if local_size is None else min(rank, local_size - 1)):
        local_rank = local_size = None
    if node_rank is not None and world_size is not None and node_rank >= world_size:
        node_rank = None
    if node_rank is None and world_size and local_size and local_rank == rank % local_size:
        # Nodes filled one after the other with the same number of ranks each, as launchers do unless told otherwise.
        node_rank = rank // local_size if world_size % local_size == 0 else None
    return numbers._replace(local_rank=local_rank, local_size=local_size, node_rank=node_rank)


def _shown(value: str) -> str:
    """Return a value as one short line that cannot play with a terminal."""
    text = value if value.isprintable() else ascii(value)
    return text if len(text) <= _LONGEST_TEXT else text[:_LONGEST_TEXT] + "..."


_RUN_IDS = (
    "RELAY_RUN_ID", "AZUREML_RUN_ID", "SLURM_JOB_ID", "PAI_JOB_NAME", "SKYPILOT_TASK_ID", "DSTACK_RUN_NAME",
    "AWS_BATCH_JOB_ID", "TRAINING_JOB_NAME", "LSB_JOBID", "PBS_JOBID", "RAY_JOB_ID", "TORCHELASTIC_RUN_ID",
    "AZ_BATCH_JOB_ID", "PMIX_NAMESPACE", "I_MPI_HYDRA_UUID",
)  # fmt: skip
"""Platforms before launchers: the name that people find in their portal or queue."""
_RESTARTS = ("TORCHELASTIC_RESTART_COUNT", "SLURM_RESTART_COUNT")


def _run_id(environ: Environment) -> str | None:
    for name in _RUN_IDS:
        text = environ.get(name, "").strip()
        # torchrun's own default is the word "none".
        if text and text.isprintable() and len(text) <= _LONGEST_TEXT and text.lower() != "none":
            return text
    # The Pods of a Kubernetes Indexed Job are called <job>-<index>.
    job, dash, index = environ.get("HOSTNAME", "").rpartition("-")
    return job if dash and job.isprintable() and index == environ.get("JOB_COMPLETION_INDEX") else None


def _restart(environ: Environment) -> int:
    return next((count for name in _RESTARTS if (count := number_or_none(environ, name)) is not None), 0)
