"""Table of the launchers of distributed jobs and of the environment variables that they set.

Launchers can be nested, such as torchrun in an MPI job in Slurm. The innermost one numbers the processes of the job,
whereas an outer one numbers only its own children, so the table is ordered from inner to outer. Rank and world size
always come from the same row.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from relay_agent.ranks.variables import (
    Environment,
    Unusable,
    flag,
    items,
    needed,
    number,
    number_or_none,
    parsed_json,
    whole,
)

__all__ = ["TABLE", "Numbers", "Row", "read_numbers"]


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
