"""Which process of a distributed job this is, told by the variables that its launcher has set.

    identify({"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "8"})                      rank 3/8   Open MPI
    identify({"RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "TORCHELASTIC_RUN_ID": "j"}) rank 3/8   torchrun
    identify({"RANK": "1", "WORLD_SIZE": "2"})                                                node 1/2   RANK of a node
    identify({})                                                                              single     no launcher

One table, one row for each launcher. Launchers stand inside one another (torchrun in an MPI job in Slurm), and the
inner one knows the processes while the outer one knows its own children only; so the table goes from inner to outer,
and the first row that makes sense wins. Rank and world size always come from the same row. Values are text from
anybody: what is not a number, or no rank below its world size, drops its row, and nothing here raises.

This module knows no framework, no process and no environment but the mapping that it is given. A process that a rank
starts inherits all these variables: that it is a helper and not the rank itself is for the caller to know.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

__all__ = ["SINGLE", "ProcessIdentity", "explain", "identify"]

SINGLE = "single"
"""The launcher of a process that nobody distributed."""

_Environment = Mapping[str, str]


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


def identify(environ: _Environment) -> ProcessIdentity:
    """Return the identity of the process that was started with these variables; it is "single" where none tells."""
    named = (verdict.identity for verdict in _verdicts(environ) if verdict.identity)
    return next(named, ProcessIdentity(run_id=_run_id(environ), restart=_restart(environ)))


def explain(environ: _Environment, base_port: int) -> list[str]:
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
_LONGEST_NUMBER = 9
"""Digits of a rank; a longer text is no rank, and turning thousands of digits into a number costs a job its start."""
_LONGEST_TEXT = 100
"""Characters of a value that a line of `explain` shows, and of a run's name."""


class _Unusable(Exception):
    """What a row says makes no sense; its text is the reason."""


class _Numbers(NamedTuple):
    """What a row says, before anybody has looked whether it can be true."""

    rank: int
    world_size: int | None = None
    local_rank: int | None = None
    local_size: int | None = None
    node_rank: int | None = None
    remark: str = ""


class _Row(NamedTuple):
    """One launcher."""

    launcher: str
    numbers: str = ""
    """Variables of rank, world size, local rank, local size and node rank, in this order: "A|B" is the first that is
    set, "A?" may be missing although it is one of the first two, and "-" is none."""
    probe: str = ""
    """Variables that are set where it was at work, where that of the rank is not enough: "!A" is not set, "A*" is any
    that begins so."""
    node_level: bool = False
    read: Callable[[_Environment], _Numbers] | None = None
    """Reads what is not simply one number in one variable."""
    others: str = ""
    """More variables that it looks at."""

    def probes(self) -> list[str]:
        """Return what tells that the launcher was at work."""
        return self.probe.split() or self.numbers.split()[:1]

    def variables(self) -> list[str]:
        """Return the names of all variables that the row looks at."""
        return list(dict.fromkeys(re.findall(r"\w+", f"{self.probe} {self.numbers} {self.others}")))


class _Verdict(NamedTuple):
    """What became of a row whose launcher was at work."""

    row: _Row
    identity: ProcessIdentity | None
    remark: str
    """Why there is no identity, or what to know about it."""


def _verdicts(environ: _Environment) -> Iterator[_Verdict]:
    """Yield the rows whose launchers were at work, the one that counts most first."""
    for row in _TABLE:
        if all(_is_set(environ, name) for name in row.probes()):
            try:
                numbers = _checked(row.read(environ) if row.read else _read(row.numbers, environ))
            except _Unusable as reason:
                yield _Verdict(row, None, str(reason))
            else:
                place = ProcessIdentity(*numbers[:5], row.launcher, _run_id(environ), _restart(environ), row.node_level)
                yield _Verdict(row, place, numbers.remark)


def _read(numbers: str, environ: _Environment) -> _Numbers:
    """Read numbers that stand in variables of their own, named as in a row."""
    rank, world_size, *others = numbers.split()
    local_rank, local_size, node_rank = (_number_or_none(environ, names) for names in [*others, "-", "-", "-"][:3])
    return _Numbers(
        _needed(environ, rank),
        _number(environ, world_size[:-1]) if world_size.endswith("?") else _needed(environ, world_size),
        local_rank,
        local_size,
        node_rank,
    )


def _checked(numbers: _Numbers) -> _Numbers:
    """Return the numbers without those of the node that contradict the others; the rank must be one of its world."""
    rank, world_size, local_rank, local_size, node_rank, _ = numbers
    if world_size is not None and rank >= world_size:
        raise _Unusable(f"there is no rank {rank} among {world_size}")
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


# Values


def _is_set(environ: _Environment, probe: str) -> bool:
    if probe.startswith("!"):
        return not environ.get(probe[1:])
    if probe.endswith("*"):
        return any(name.startswith(probe[:-1]) for name in environ)
    return bool(environ.get(probe))


def _whole(text: str, name: str, digits: int = _LONGEST_NUMBER) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= digits):
        raise _Unusable(f"{name} is not a number")
    return int(text)


def _number(environ: _Environment, names: str, digits: int = _LONGEST_NUMBER) -> int | None:
    """Return the number in the first of the variables "A|B" that is set."""
    name = next((name for name in names.split("|") if environ.get(name)), None)
    return None if name is None else _whole(environ[name].strip(), name, digits)


def _needed(environ: _Environment, names: str, digits: int = _LONGEST_NUMBER) -> int:
    number = _number(environ, names, digits)
    if number is None:
        raise _Unusable(f"{names.partition('|')[0]} is not set")
    return number


def _number_or_none(environ: _Environment, names: str) -> int | None:
    """Return a number that the process's place does not hang on; what is no number is left out."""
    try:
        return _number(environ, names)
    except _Unusable:
        return None


def _flag(environ: _Environment, names: str) -> bool | None:
    """Return what a text flag says, where "false" is false; None where none is set, or says anything else."""
    text = _text(environ, names).lower()
    return {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}.get(text)


def _list(environ: _Environment, names: str) -> list[str]:
    """Return the items of a list; Azure Batch separates them by ";" or ",", OpenPAI by ","."""
    return [item.strip() for item in re.split("[;,]", _text(environ, names)) if item.strip()]


def _text(environ: _Environment, names: str) -> str:
    return next((environ[name] for name in names.split("|") if environ.get(name)), "").strip()


def _json(environ: _Environment, name: str) -> object:
    try:
        return json.loads(environ[name])
    except (ValueError, RecursionError):
        raise _Unusable(f"{name} is not JSON") from None


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


def _run_id(environ: _Environment) -> str | None:
    for name in _RUN_IDS:
        text = environ.get(name, "").strip()
        # torchrun's own default is the word "none".
        if text and text.isprintable() and len(text) <= _LONGEST_TEXT and text.lower() != "none":
            return text
    # The Pods of a Kubernetes Indexed Job are called <job>-<index>.
    job, dash, index = environ.get("HOSTNAME", "").rpartition("-")
    return job if dash and job.isprintable() and index == environ.get("JOB_COMPLETION_INDEX") else None


def _restart(environ: _Environment) -> int:
    return next((count for name in _RESTARTS if (count := _number_or_none(environ, name)) is not None), 0)


# Rows that are more than one number in one variable


_NO_STEP = 0xFFFFFFF0
"""Slurm counts here what is no step of srun: 4294967290 is an interactive shell, 4294967291 a batch script."""


_SLURM = "SLURM_PROCID SLURM_STEP_NUM_TASKS|SLURM_NTASKS SLURM_LOCALID SLURM_NTASKS_PER_NODE SLURM_NODEID"


def _slurm(environ: _Environment) -> _Numbers:
    """Read the task of a step: in a batch script SLURM_PROCID is 0, whatever runs there."""
    if _needed(environ, "SLURM_STEP_ID", digits=len(str(_NO_STEP))) >= _NO_STEP:
        raise _Unusable("srun has not started this process: SLURM_STEP_ID is a batch script's or a shell's")
    return _read(_SLURM, environ)


def _lightning(environ: _Environment) -> _Numbers:
    """Read what Lightning gives the processes that it starts: no rank, which counts by node and then by process."""
    world_size, local_rank, node_rank = (_needed(environ, name) for name in ("WORLD_SIZE", "LOCAL_RANK", "NODE_RANK"))
    if node_rank == 0:
        return _Numbers(local_rank, world_size, local_rank, None, 0)
    nodes = _number(environ, "AZUREML_NODE_COUNT")
    if not nodes or world_size % nodes:
        raise _Unusable("nothing tells how many processes the nodes before this one have")
    local_size = world_size // nodes
    return _Numbers(node_rank * local_size + local_rank, world_size, local_rank, local_size, node_rank)


_TF_ROLES = ("chief", "master", "worker", "ps")
"""The order of ranks; "master" is what TensorFlow 1 called the chief."""


def _tensorflow(environ: _Environment) -> _Numbers:
    """Read TF_CONFIG: {"cluster": {"worker": ["host:port", ...], ...}, "task": {"type": "worker", "index": 0}}."""
    config = _json(environ, "TF_CONFIG")
    cluster, task = (config.get("cluster"), config.get("task")) if isinstance(config, dict) else (None, None)
    if not isinstance(cluster, dict) or not isinstance(task, dict):
        raise _Unusable("it has no cluster or no task")
    sizes = {role: len(hosts) for role in _TF_ROLES if isinstance(hosts := cluster.get(role), list)}
    role, index = str(task.get("type")), _whole(str(task.get("index")), "the index of its task")
    total = sum(sizes.values())
    if role == "evaluator":  # it is outside the cluster, so it comes behind all others and the world has no size.
        return _Numbers(total + index, None, 0, 1, total + index)
    if index >= sizes.get(role, 0):
        raise _Unusable("its task is not in its cluster")
    rank = sum(sizes[each] for each in list(sizes)[: list(sizes).index(role)]) + index
    return _Numbers(rank, total, 0, 1, rank)


_PAI_INDEX = "PAI_CURRENT_TASK_ROLE_CURRENT_TASK_INDEX|PAI_TASK_INDEX|PAI_TASK_ROLE_INDEX"
"""The documented name, the one of OpenPAI before 1.0, and the one that the paipdb tool reads."""


def _openpai(environ: _Environment) -> _Numbers:
    """Read OpenPAI's task: roles in the order of the job's configuration, tasks of a role by their index."""
    role, index = environ["PAI_CURRENT_TASK_ROLE_NAME"].strip(), _needed(environ, _PAI_INDEX)
    roles = _list(environ, "PAI_TASK_ROLE_LIST") or [role]
    if role not in roles:
        raise _Unusable("PAI_TASK_ROLE_LIST does not have the role of this task")
    sizes = [_needed(environ, f"PAI_TASK_ROLE_TASK_COUNT_{each}") for each in roles]
    before, size = sum(sizes[: roles.index(role)]), sizes[roles.index(role)]
    if index >= size:
        raise _Unusable(f"there is no task {index} among {size}")
    return _Numbers(before + index, sum(sizes), 0, 1, before + index)


def _indexed_job(environ: _Environment) -> _Numbers:
    """Read the index of a Pod; how many there are is not in its environment."""
    index = _needed(environ, "JOB_COMPLETION_INDEX")
    return _Numbers(index, None, 0, 1, index)


def _sagemaker(environ: _Environment) -> _Numbers:
    """Read SM_HOSTS: ["algo-1", "algo-2"]."""
    hosts = _json(environ, "SM_HOSTS")
    if not isinstance(hosts, list) or environ["SM_CURRENT_HOST"] not in hosts:
        raise _Unusable("SM_HOSTS does not have SM_CURRENT_HOST")
    rank = hosts.index(environ["SM_CURRENT_HOST"])
    return _Numbers(rank, len(hosts), node_rank=rank)


_BATCH_MASTER = "AZ_BATCH_IS_CURRENT_NODE_MASTER|AZ_BATCHAI_IS_CURRENT_NODE_MASTER"
_BATCH_HOSTS = "AZ_BATCH_NODE_LIST|AZ_BATCH_HOST_LIST"
_BATCH_OTHERS = "AZ_BATCHAI_TASK_INDEX AZUREML_NODE_COUNT AZ_BATCH_MASTER_NODE AZ_BATCHAI_NODE_IP"


def _azure_batch(environ: _Environment) -> _Numbers:
    """Read the node of a multi-instance task: its index, else its place in the list of nodes, else the master flag."""
    hosts = _list(environ, _BATCH_HOSTS)
    world_size = _number(environ, "AZUREML_NODE_COUNT") or len(hosts) or None
    is_master = _flag(environ, _BATCH_MASTER)
    master, own = environ.get("AZ_BATCH_MASTER_NODE", "").partition(":")[0], environ.get("AZ_BATCHAI_NODE_IP", "")
    hosts.sort(key=lambda host: host != master)  # the master first, the others as they stand.
    index, remark = _number(environ, "AZ_BATCHAI_TASK_INDEX"), ""
    if index is None and is_master:
        index = 0
    elif index is None and own in hosts and (hosts.index(own) or is_master is None):
        index = hosts.index(own)
    elif index is None and is_master is False:
        # Not rank 0, which the master is. On more than two nodes several of them may claim this one.
        index, remark = (world_size or 2) - 1, "not the master, and nothing tells its number: taken for the last node"
    if index is None:
        raise _Unusable("nothing tells the number of this node")
    return _Numbers(index, world_size, node_rank=index, remark=remark)


_TABLE = (
    _Row("RELAY_RANK", "RELAY_RANK RELAY_WORLD_SIZE? RELAY_LOCAL_RANK RELAY_LOCAL_SIZE RELAY_NODE_RANK"),
    # Launchers that count processes, inner ones first. Half of them use torch.distributed's names.
    _Row("torchrun", "RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE GROUP_RANK", "TORCHELASTIC_RUN_ID"),
    _Row("DeepSpeed", "RANK WORLD_SIZE LOCAL_RANK LOCAL_SIZE CROSS_RANK", "CROSS_RANK RANK"),
    # Its Gloo runs: those over MPI have the variables of MPI.
    _Row("Horovod", "HOROVOD_RANK HOROVOD_SIZE HOROVOD_LOCAL_RANK HOROVOD_LOCAL_SIZE HOROVOD_CROSS_RANK"),
    # Before Accelerate, because Ray Train sets ACCELERATE_TORCH_DEVICE.
    _Row("Ray Train", "RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE NODE_RANK", "RAY_JOB_ID RANK LOCAL_RANK"),
    _Row("Accelerate", "RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE GROUP_RANK", "ACCELERATE_* RANK LOCAL_RANK"),
    _Row("Azure ML PyTorch", "RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE NODE_RANK", "AZUREML_RUN_ID RANK LOCAL_RANK"),
    _Row("torch.distributed", "RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE GROUP_RANK|NODE_RANK", "RANK LOCAL_RANK"),
    # OMPI_COMM_WORLD_NODE_RANK is no number of a node, but another local rank.
    _Row("Open MPI", " ".join(f"OMPI_COMM_WORLD_{name}" for name in ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE"))),
    _Row("MVAPICH2", " ".join(f"MV2_COMM_WORLD_{name}" for name in ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE"))),
    _Row("Intel MPI", "PMI_RANK PMI_SIZE MPI_LOCALRANKID MPI_LOCALNRANKS", "PMI_RANK I_MPI_HYDRA_UUID"),
    _Row("MPICH", "PMI_RANK PMI_SIZE MPI_LOCALRANKID MPI_LOCALNRANKS", "PMI_RANK MPI_LOCALRANKID"),
    _Row(
        "Cray PALS", "PALS_RANKID PMI_SIZE PALS_LOCAL_RANKID|PMI_LOCAL_RANK PMI_LOCAL_SIZE|PALS_LOCAL_SIZE PALS_NODEID"
    ),
    _Row("PMI", "PMI_RANK PMI_SIZE PMI_LOCAL_RANK PMI_LOCAL_SIZE"),
    # After MPI, whose launchers have srun start them, once on each node.
    _Row("Slurm", _SLURM, read=_slurm, others="SLURM_STEP_ID"),
    _Row("LSF jsrun", " ".join(f"JSM_NAMESPACE_{name}" for name in ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE"))),
    _Row("Lightning", probe="!RANK WORLD_SIZE LOCAL_RANK NODE_RANK", read=_lightning, others="AZUREML_NODE_COUNT"),
    _Row("TensorFlow", probe="TF_CONFIG", read=_tensorflow),
    # What counts nodes or containers: a launcher that was at work inside has its row above.
    # Kubeflow's PyTorchJob and Alibaba's PAI: there, WORLD_SIZE is the number of nodes.
    _Row("RANK of a node", "RANK WORLD_SIZE - - RANK", "RANK !LOCAL_RANK", node_level=True),
    _Row("Kubeflow Trainer", "PET_NODE_RANK PET_NNODES - - PET_NODE_RANK", "PET_NNODES", node_level=True),
    _Row(
        "OpenPAI",
        probe="PAI_CURRENT_TASK_ROLE_NAME",
        node_level=True,
        read=_openpai,
        others=f"{_PAI_INDEX} PAI_TASK_ROLE_LIST",
    ),
    _Row("Kubernetes Indexed Job", probe="JOB_COMPLETION_INDEX", node_level=True, read=_indexed_job),
    _Row("SkyPilot", "SKYPILOT_NODE_RANK SKYPILOT_NUM_NODES - - SKYPILOT_NODE_RANK", node_level=True),
    _Row("dstack", "DSTACK_NODE_RANK DSTACK_NODES_NUM - - DSTACK_NODE_RANK", node_level=True),
    _Row("AWS Batch", "AWS_BATCH_JOB_NODE_INDEX AWS_BATCH_JOB_NUM_NODES - - AWS_BATCH_JOB_NODE_INDEX", node_level=True),
    _Row("SageMaker", probe="SM_HOSTS SM_CURRENT_HOST", node_level=True, read=_sagemaker),
    # Last: its variables are on every node of Azure ML, whatever was started there.
    _Row(
        "Azure Batch",
        probe="AZ_BATCH*",
        node_level=True,
        read=_azure_batch,
        others=f"{_BATCH_OTHERS} {_BATCH_MASTER} {_BATCH_HOSTS}",
    ),
)
