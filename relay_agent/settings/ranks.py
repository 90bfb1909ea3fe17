"""Rank and related numbers of a process, from the environment variables of its launcher, and its logical port."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from relay_core.errors import ConfigurationError
from relay_core.value_parsers import MAX_PORT

# Parsers for environment variables with untrusted text: numbers, flags, lists and JSON.
#
# The parameter `names` may be a list of alternatives, "A|B"; the first variable that is set is used.

Environment = Mapping[str, str]

MAX_DIGITS = 9
"""Maximum number of digits; converting a text with thousands of digits would delay the start of the job."""


class Unusable(Exception):
    """The values of variables are invalid; the text is the reason."""


def is_set(environ: Environment, probe: str) -> bool:
    """Whether a condition holds: "A": A is set and not empty; "!A": it is not; "A*": some variable has this prefix."""
    if probe.startswith("!"):
        return not environ.get(probe[1:])
    if probe.endswith("*"):
        return any(name.startswith(probe[:-1]) for name in environ)
    return bool(environ.get(probe))


def whole(text: str, name: str, digits: int = MAX_DIGITS) -> int:
    """Return a text of at most `digits` decimal digits as a number.

    Raises:
        Unusable: the text is anything else; the reason contains `name`, the variable or field.
    """
    if not (text.isascii() and text.isdecimal() and len(text) <= digits):
        raise Unusable(f"{name} is not a number")
    return int(text)


def number(environ: Environment, names: str, digits: int = MAX_DIGITS) -> int | None:
    """Return the number in the first variable that is set, or None if none is set.

    Raises:
        Unusable: the value is not a number.
    """
    name = next((name for name in names.split("|") if environ.get(name)), None)
    return None if name is None else whole(environ[name].strip(), name, digits)


def needed(environ: Environment, names: str, digits: int = MAX_DIGITS) -> int:
    """Return the number in the first variable that is set.

    Raises:
        Unusable: none is set, or the value is not a number.
    """
    found = number(environ, names, digits)
    if found is None:
        raise Unusable(f"{names.partition('|')[0]} is not set")
    return found


def number_or_none(environ: Environment, names: str) -> int | None:
    """Return the number in the first variable that is set, or None if none is set or the value is not a number."""
    try:
        return number(environ, names)
    except Unusable:
        return None


def flag(environ: Environment, names: str) -> bool | None:
    """Return the Boolean in the first variable that is set (true/1/yes, false/0/no), or None for any other text."""
    text = _text(environ, names).lower()
    return {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}.get(text)


def items(environ: Environment, names: str) -> list[str]:
    """Return the items of a list, separated by ";" or "," as in Azure Batch, or by "," as in OpenPAI."""
    return [item.strip() for item in re.split("[;,]", _text(environ, names)) if item.strip()]


def _text(environ: Environment, names: str) -> str:
    return next((environ[name] for name in names.split("|") if environ.get(name)), "").strip()


def parsed_json(environ: Environment, name: str) -> object:
    """Return the JSON value of a variable.

    Raises:
        Unusable: the text is not JSON.
    """
    try:
        return json.loads(environ[name])
    except (ValueError, RecursionError):
        raise Unusable(f"{name} is not JSON") from None


# Table of the launchers of distributed jobs and of the environment variables that they set.
#
# Launchers can be nested, such as torchrun in an MPI job in Slurm. The innermost one numbers the processes of the job,
# whereas an outer one numbers only its own children, so the table is ordered from inner to outer. Rank and world size
# always come from the same row.


class Numbers(NamedTuple):
    """The numbers of one launcher, not yet checked against each other."""

    rank: int
    world_size: int | None = None
    local_rank: int | None = None
    local_size: int | None = None
    node_rank: int | None = None
    remark: str = ""


class Row(NamedTuple):
    """One launcher."""

    launcher: str
    numbers: str = ""
    """Variables for rank, world size, local rank, local size and node rank, in this order. "A|B" means the first one
    that is set, "A?" may be missing although it is one of the first two, and "-" means that there is none."""
    probe: str = ""
    """Conditions that identify the launcher if the variable for the rank does not: "A" is set, "!A" is not set, "A*"
    means that any variable with this prefix is set."""
    node_level: bool = False
    """True if the launcher numbers nodes, not processes."""
    read: Callable[[Environment], Numbers] | None = None
    """Reads the numbers if the launcher does not have one variable per number."""
    others: str = ""
    """Further variables that `read` uses."""

    def probes(self) -> list[str]:
        """Return the conditions on variables that identify the launcher, as in `probe`."""
        return self.probe.split() or self.numbers.split()[:1]

    def variables(self) -> list[str]:
        """Return the names of all variables that the row uses."""
        return list(dict.fromkeys(re.findall(r"\w+", f"{self.probe} {self.numbers} {self.others}")))


def read_numbers(numbers: str, environ: Environment) -> Numbers:
    """Read one number per variable, from variables named as in `Row.numbers`."""
    rank, world_size, *others = numbers.split()
    local_rank, local_size, node_rank = (number_or_none(environ, names) for names in [*others, "-", "-", "-"][:3])
    return Numbers(
        needed(environ, rank),
        number(environ, world_size[:-1]) if world_size.endswith("?") else needed(environ, world_size),
        local_rank,
        local_size,
        node_rank,
    )


# Launchers that do not have one variable per number


_NO_STEP = 0xFFFFFFF0
"""Lowest step id that srun does not use: 4294967290 is an interactive shell, 4294967291 a batch script."""


_SLURM = "SLURM_PROCID SLURM_STEP_NUM_TASKS|SLURM_NTASKS SLURM_LOCALID SLURM_NTASKS_PER_NODE SLURM_NODEID"


def _slurm(environ: Environment) -> Numbers:
    """Read the task of an srun step. Without srun, SLURM_PROCID is 0 in every process of a batch script."""
    if needed(environ, "SLURM_STEP_ID", digits=len(str(_NO_STEP))) >= _NO_STEP:
        raise Unusable("srun did not start this process: SLURM_STEP_ID belongs to a batch script or a shell")
    return read_numbers(_SLURM, environ)


def _lightning(environ: Environment) -> Numbers:
    """Compute the rank, which Lightning's variables lack: nodes in order, and on each node its processes."""
    world_size, local_rank, node_rank = (needed(environ, name) for name in ("WORLD_SIZE", "LOCAL_RANK", "NODE_RANK"))
    if node_rank == 0:
        return Numbers(local_rank, world_size, local_rank, None, 0)
    nodes = number(environ, "AZUREML_NODE_COUNT")
    if not nodes or world_size % nodes:
        raise Unusable("the number of processes on the preceding nodes is unknown")
    local_size = world_size // nodes
    return Numbers(node_rank * local_size + local_rank, world_size, local_rank, local_size, node_rank)


_TF_ROLES = ("chief", "master", "worker", "ps")
"""The roles in rank order; "master" is TensorFlow 1's name for the chief."""


def _tensorflow(environ: Environment) -> Numbers:
    """Read TF_CONFIG: {"cluster": {"worker": ["host:port", ...], ...}, "task": {"type": "worker", "index": 0}}."""
    config = parsed_json(environ, "TF_CONFIG")
    cluster, task = (config.get("cluster"), config.get("task")) if isinstance(config, dict) else (None, None)
    if not isinstance(cluster, dict) or not isinstance(task, dict):
        raise Unusable("TF_CONFIG has no cluster or no task")
    sizes = {role: len(hosts) for role in _TF_ROLES if isinstance(hosts := cluster.get(role), list)}
    role, index = str(task.get("type")), whole(str(task.get("index")), "the task index in TF_CONFIG")
    total = sum(sizes.values())
    if role == "evaluator":  # outside the cluster: numbered after all others, and the world size is unknown
        return Numbers(total + index, None, 0, 1, total + index)
    if index >= sizes.get(role, 0):
        raise Unusable("the cluster in TF_CONFIG does not contain the task")
    rank = sum(sizes[each] for each in list(sizes)[: list(sizes).index(role)]) + index
    return Numbers(rank, total, 0, 1, rank)


_PAI_INDEX = "PAI_CURRENT_TASK_ROLE_CURRENT_TASK_INDEX|PAI_TASK_INDEX|PAI_TASK_ROLE_INDEX"
"""The documented name, the name in OpenPAI before 1.0, and the name that the paipdb tool reads."""


def _openpai(environ: Environment) -> Numbers:
    """Compute the rank from OpenPAI's task: roles in the order of the job's configuration, then by task index."""
    role, index = environ["PAI_CURRENT_TASK_ROLE_NAME"].strip(), needed(environ, _PAI_INDEX)
    roles = items(environ, "PAI_TASK_ROLE_LIST") or [role]
    if role not in roles:
        raise Unusable("PAI_TASK_ROLE_LIST does not contain the role of this task")
    sizes = [needed(environ, f"PAI_TASK_ROLE_TASK_COUNT_{each}") for each in roles]
    before, size = sum(sizes[: roles.index(role)]), sizes[roles.index(role)]
    if index >= size:
        raise Unusable(f"task index {index} is not less than the number of tasks, {size}")
    return Numbers(before + index, sum(sizes), 0, 1, before + index)


def _indexed_job(environ: Environment) -> Numbers:
    """Read the index of a Pod; the number of Pods is not in its environment."""
    index = needed(environ, "JOB_COMPLETION_INDEX")
    return Numbers(index, None, 0, 1, index)


def _sagemaker(environ: Environment) -> Numbers:
    """Read SM_HOSTS: ["algo-1", "algo-2"]."""
    hosts = parsed_json(environ, "SM_HOSTS")
    if not isinstance(hosts, list) or environ["SM_CURRENT_HOST"] not in hosts:
        raise Unusable("SM_HOSTS does not contain SM_CURRENT_HOST")
    rank = hosts.index(environ["SM_CURRENT_HOST"])
    return Numbers(rank, len(hosts), node_rank=rank)


_BATCH_MASTER = "AZ_BATCH_IS_CURRENT_NODE_MASTER|AZ_BATCHAI_IS_CURRENT_NODE_MASTER"
_BATCH_HOSTS = "AZ_BATCH_NODE_LIST|AZ_BATCH_HOST_LIST"
_BATCH_OTHERS = "AZ_BATCHAI_TASK_INDEX AZUREML_NODE_COUNT AZ_BATCH_MASTER_NODE AZ_BATCHAI_NODE_IP"


def _azure_batch(environ: Environment) -> Numbers:
    """Read the node of a multi-instance task from its index, its position in the node list, or the master flag."""
    hosts = items(environ, _BATCH_HOSTS)
    world_size = number(environ, "AZUREML_NODE_COUNT") or len(hosts) or None
    is_master = flag(environ, _BATCH_MASTER)
    master, own = environ.get("AZ_BATCH_MASTER_NODE", "").partition(":")[0], environ.get("AZ_BATCHAI_NODE_IP", "")
    hosts.sort(key=lambda host: host != master)  # the master first, the others in their order
    index, remark = number(environ, "AZ_BATCHAI_TASK_INDEX"), ""
    if index is None and is_master:
        index = 0
    elif index is None and own in hosts and (hosts.index(own) or is_master is None):
        index = hosts.index(own)
    elif index is None and is_master is False:
        # The master is rank 0, so this is another node. With more than two nodes, several of them may have this number.
        index = (world_size or 2) - 1
        remark = "this node is not the master and its number is unknown, so it is assumed to be the last node"
    if index is None:
        raise Unusable("the number of this node is unknown")
    return Numbers(index, world_size, node_rank=index, remark=remark)


TABLE = (
    Row("RELAY_RANK", "RELAY_RANK RELAY_WORLD_SIZE? RELAY_LOCAL_RANK RELAY_LOCAL_SIZE RELAY_NODE_RANK"),
    # Launchers that number processes, innermost first. Half of them use torch.distributed's variable names.
    Row("torchrun", "RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE GROUP_RANK", "TORCHELASTIC_RUN_ID"),
    Row("DeepSpeed", "RANK WORLD_SIZE LOCAL_RANK LOCAL_SIZE CROSS_RANK", "CROSS_RANK RANK"),
    # With Gloo; Horovod over MPI has only MPI's variables.
    Row("Horovod", "HOROVOD_RANK HOROVOD_SIZE HOROVOD_LOCAL_RANK HOROVOD_LOCAL_SIZE HOROVOD_CROSS_RANK"),
    # Before Accelerate, because Ray Train sets ACCELERATE_TORCH_DEVICE.
    Row("Ray Train", "RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE NODE_RANK", "RAY_JOB_ID RANK LOCAL_RANK"),
    Row("Accelerate", "RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE GROUP_RANK", "ACCELERATE_* RANK LOCAL_RANK"),
    Row("Azure ML PyTorch", "RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE NODE_RANK", "AZUREML_RUN_ID RANK LOCAL_RANK"),
    Row("torch.distributed", "RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE GROUP_RANK|NODE_RANK", "RANK LOCAL_RANK"),
    # OMPI_COMM_WORLD_NODE_RANK is not a node number, but another local rank.
    Row("Open MPI", " ".join(f"OMPI_COMM_WORLD_{name}" for name in ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE"))),
    Row("MVAPICH2", " ".join(f"MV2_COMM_WORLD_{name}" for name in ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE"))),
    Row("Intel MPI", "PMI_RANK PMI_SIZE MPI_LOCALRANKID MPI_LOCALNRANKS", "PMI_RANK I_MPI_HYDRA_UUID"),
    Row("MPICH", "PMI_RANK PMI_SIZE MPI_LOCALRANKID MPI_LOCALNRANKS", "PMI_RANK MPI_LOCALRANKID"),
    Row(
        "Cray PALS", "PALS_RANKID PMI_SIZE PALS_LOCAL_RANKID|PMI_LOCAL_RANK PMI_LOCAL_SIZE|PALS_LOCAL_SIZE PALS_NODEID"
    ),
    Row("PMI", "PMI_RANK PMI_SIZE PMI_LOCAL_RANK PMI_LOCAL_SIZE"),
    # After MPI, whose launchers use srun to start one daemon per node.
    Row("Slurm", _SLURM, read=_slurm, others="SLURM_STEP_ID"),
    Row("LSF jsrun", " ".join(f"JSM_NAMESPACE_{name}" for name in ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE"))),
    Row("Lightning", probe="!RANK WORLD_SIZE LOCAL_RANK NODE_RANK", read=_lightning, others="AZUREML_NODE_COUNT"),
    Row("TensorFlow", probe="TF_CONFIG", read=_tensorflow),
    # Platforms that number nodes or containers; launchers inside those have their rows above.
    # Kubeflow's PyTorchJob and Alibaba's PAI, where WORLD_SIZE is the number of nodes:
    Row("RANK of a node", "RANK WORLD_SIZE - - RANK", "RANK !LOCAL_RANK", node_level=True),
    Row("Kubeflow Trainer", "PET_NODE_RANK PET_NNODES - - PET_NODE_RANK", "PET_NNODES", node_level=True),
    Row(
        "OpenPAI",
        probe="PAI_CURRENT_TASK_ROLE_NAME",
        node_level=True,
        read=_openpai,
        others=f"{_PAI_INDEX} PAI_TASK_ROLE_LIST",
    ),
    Row("Kubernetes Indexed Job", probe="JOB_COMPLETION_INDEX", node_level=True, read=_indexed_job),
    Row("SkyPilot", "SKYPILOT_NODE_RANK SKYPILOT_NUM_NODES - - SKYPILOT_NODE_RANK", node_level=True),
    Row("dstack", "DSTACK_NODE_RANK DSTACK_NODES_NUM - - DSTACK_NODE_RANK", node_level=True),
    Row("AWS Batch", "AWS_BATCH_JOB_NODE_INDEX AWS_BATCH_JOB_NUM_NODES - - AWS_BATCH_JOB_NODE_INDEX", node_level=True),
    Row("SageMaker", probe="SM_HOSTS SM_CURRENT_HOST", node_level=True, read=_sagemaker),
    # Last, because every Azure ML node has its variables, regardless of the launcher that runs there.
    Row(
        "Azure Batch",
        probe="AZ_BATCH*",
        node_level=True,
        read=_azure_batch,
        others=f"{_BATCH_OTHERS} {_BATCH_MASTER} {_BATCH_HOSTS}",
    ),
)


# The logical port of a rank, used in `relay-client --ports`: `--debug-port` plus the rank.


def logical_port(debug_port: int, rank: int) -> int:
    """Return the logical port.

    Raises:
        ConfigurationError: the port would be above the highest one.
    """
    port = debug_port + rank
    if port > MAX_PORT:
        raise ConfigurationError(
            f"rank {rank} has no port: {debug_port} + {rank} is above {MAX_PORT}", hint="use a lower --debug-port"
        )
    return port


# Rank and related numbers of a process, read from the environment variables that its launcher has set.
#
#     identify({"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "8"})                      rank 3/8   Open MPI
#     identify({"RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "TORCHELASTIC_RUN_ID": "j"}) rank 3/8   torchrun
#     identify({"RANK": "1", "WORLD_SIZE": "2"})                                                node 1/2   a node's RANK
#     identify({})                                                                              single     no launcher
#
# The first valid row of `relay_agent.settings.ranks` is used. Values are untrusted text: a row with a value that is
# not a number, or with a rank that is not less than the world size, is skipped; nothing here raises.
#
# This module reads only the mapping that it is given. A process that a rank starts, such as a data loader, inherits all
# these variables; the caller must distinguish it from the rank itself.

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
    def is_launched(self) -> bool:
        """Whether a launcher has given this process its own rank."""
        return self.launcher != SINGLE and not self.node_level

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
