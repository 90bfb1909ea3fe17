"""Facts about naming a process from its environment: a case for each launcher, one for each trap, any environment."""

import json

import pytest

from relay_agent.settings.ranks import SINGLE, TABLE, explain, identify

TORCH = {"RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "MASTER_ADDR": "10.0.0.4", "MASTER_PORT": "29500"}
TORCHRUN = TORCH | {"TORCHELASTIC_RUN_ID": "job", "LOCAL_WORLD_SIZE": "2", "GROUP_RANK": "1", "ROLE_RANK": "3"}
OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "5", "OMPI_COMM_WORLD_SIZE": "8", "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "4", "OMPI_COMM_WORLD_NODE_RANK": "1", "PMIX_RANK": "5",
}  # fmt: skip
MPICH = {"PMI_RANK": "5", "PMI_SIZE": "8", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "4", "PMI_HOSTNAME": "b"}
SLURM = {
    "SLURM_PROCID": "2", "SLURM_STEP_NUM_TASKS": "4", "SLURM_NTASKS": "9", "SLURM_LOCALID": "0", "SLURM_NODEID": "1",
    "SLURM_NTASKS_PER_NODE": "2", "SLURM_STEP_ID": "0", "SLURM_JOB_ID": "77",
}  # fmt: skip
BATCH = {"AZ_BATCH_NODE_ID": "tvm-1_1-p", "AZ_BATCH_NODE_LIST": "10.0.0.4;10.0.0.5;10.0.0.6"}
PAI = {
    "PAI_JOB_NAME": "mnist", "PAI_TASK_ROLE_LIST": "ps,worker", "PAI_TASK_ROLE_TASK_COUNT_ps": "2",
    "PAI_TASK_ROLE_TASK_COUNT_worker": "3", "PAI_CURRENT_TASK_ROLE_NAME": "worker",
    "PAI_CURRENT_TASK_ROLE_CURRENT_TASK_INDEX": "1",
}  # fmt: skip
CLUSTER = {"ps": ["p0", "p1"], "worker": ["w0", "w1", "w2"], "chief": ["c"]}


def tensorflow(kind: str, index: object, cluster: dict | None = None) -> dict[str, str]:
    config = {"cluster": CLUSTER if cluster is None else cluster, "task": {"type": kind, "index": index}}
    return {"TF_CONFIG": json.dumps(config)}


def place(rank, world, local_rank=None, local_size=None, node=None) -> tuple:
    return rank, world, local_rank, local_size, node


def node(rank, world) -> tuple:
    """The place of a node: nothing is known about the processes on it."""
    return rank, world, None, None, rank


ROWS = {
    "ours": (
        {"RELAY_RANK": "6", "RELAY_WORLD_SIZE": "8", "RELAY_LOCAL_RANK": "2", "RELAY_NODE_RANK": "1"},
        "RELAY_RANK", place(6, 8, 2, None, 1),
    ),
    "ours without a world": ({"RELAY_RANK": "6"}, "RELAY_RANK", place(6, None)),
    "torchrun": (TORCHRUN, "torchrun", place(3, 8, 1, 2, 1)),
    "Azure ML PyTorch": (
        TORCH | {"AZUREML_RUN_ID": "amber_fox", "NODE_RANK": "1", "AZUREML_NODE_COUNT": "4"},
        "Azure ML PyTorch", place(3, 8, 1, None, 1),
    ),
    "Azure ML MPI": (OPEN_MPI | {"AZUREML_RUN_ID": "a"} | BATCH, "Open MPI", place(5, 8, 1, 4, 1)),
    "Azure ML TensorFlow": (
        tensorflow("worker", 1, {"worker": ["a:1", "b:1"], "ps": ["c:1"]}) | {"AZUREML_RUN_ID": "a"} | BATCH,
        "TensorFlow", place(1, 3, 0, 1, 1),
    ),
    "Azure ML parallel component": (
        BATCH | {"AZUREML_RUN_ID": "a", "AZUREML_NODE_COUNT": "3", "AZ_BATCHAI_TASK_INDEX": "2"},
        "Azure Batch", node(2, 3),
    ),
    "DeepSpeed": (
        TORCH | {"CROSS_RANK": "1", "CROSS_SIZE": "4", "LOCAL_SIZE": "2"}, "DeepSpeed", place(3, 8, 1, 2, 1),
    ),
    "Accelerate": (
        TORCH | {"ACCELERATE_MIXED_PRECISION": "no", "LOCAL_WORLD_SIZE": "2"}, "Accelerate", place(3, 8, 1, 2, 1),
    ),
    "Ray Train": (
        TORCH | {"RAY_JOB_ID": "01000000", "LOCAL_WORLD_SIZE": "2", "NODE_RANK": "1", "ACCELERATE_TORCH_DEVICE": "cpu"},
        "Ray Train", place(3, 8, 1, 2, 1),
    ),
    "torch.distributed by hand": (TORCH, "torch.distributed", place(3, 8, 1)),
    "Open MPI": (OPEN_MPI, "Open MPI", place(5, 8, 1, 4, 1)),
    "MPICH": (MPICH, "MPICH", place(5, 8, 1, 4, 1)),
    "Intel MPI": (MPICH | {"I_MPI_HYDRA_UUID": "d639"}, "Intel MPI", place(5, 8, 1, 4, 1)),
    "PMI of srun": (SLURM | {"PMI_RANK": "2", "PMI_SIZE": "4"}, "PMI", place(2, 4)),
    "MVAPICH2": (
        {
            "MV2_COMM_WORLD_RANK": "5", "MV2_COMM_WORLD_SIZE": "8",
            "MV2_COMM_WORLD_LOCAL_RANK": "1", "MV2_COMM_WORLD_LOCAL_SIZE": "4",
        },
        "MVAPICH2", place(5, 8, 1, 4, 1),
    ),
    "Cray PALS": (
        {
            "PALS_RANKID": "5", "PALS_LOCAL_RANKID": "1", "PALS_NODEID": "2",
            "PMI_RANK": "5", "PMI_SIZE": "8", "PMI_LOCAL_SIZE": "2",
        },
        "Cray PALS", place(5, 8, 1, 2, 2),
    ),
    "Slurm": (SLURM, "Slurm", place(2, 4, 0, 2, 1)),
    "Slurm without a step size": (
        {name: value for name, value in SLURM.items() if name not in {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS_PER_NODE"}},
        "Slurm", place(2, 9, 0, None, 1),
    ),
    "LSF jsrun": (
        {"JSM_NAMESPACE_RANK": "5", "JSM_NAMESPACE_SIZE": "8", "JSM_NAMESPACE_LOCAL_RANK": "1"},
        "LSF jsrun", place(5, 8, 1),
    ),
    "Horovod": (
        {
            "HOROVOD_RANK": "5", "HOROVOD_SIZE": "8", "HOROVOD_LOCAL_RANK": "1", "HOROVOD_LOCAL_SIZE": "4",
            "HOROVOD_CROSS_RANK": "1", "HOROVOD_CROSS_SIZE": "2",
        },
        "Horovod", place(5, 8, 1, 4, 1),
    ),
    "Lightning's own processes": (
        {"WORLD_SIZE": "4", "LOCAL_RANK": "3", "NODE_RANK": "0"}, "Lightning", place(3, 4, 3, None, 0),
    ),
    "Lightning on many nodes": (
        {"WORLD_SIZE": "8", "LOCAL_RANK": "3", "NODE_RANK": "1", "AZUREML_NODE_COUNT": "2"},
        "Lightning", place(7, 8, 3, 4, 1),
    ),
    "TensorFlow chief": (tensorflow("chief", 0), "TensorFlow", place(0, 6, 0, 1, 0)),
    "TensorFlow worker": (tensorflow("worker", 2), "TensorFlow", place(3, 6, 0, 1, 3)),
    "TensorFlow parameter server": (tensorflow("ps", 1), "TensorFlow", place(5, 6, 0, 1, 5)),
    "TensorFlow evaluator": (tensorflow("evaluator", 0), "TensorFlow", place(6, None, 0, 1, 6)),
    "Kubeflow PyTorchJob": ({"RANK": "1", "WORLD_SIZE": "2", "PYTHONUNBUFFERED": "1"}, "RANK of a node", node(1, 2)),
    "Kubeflow Trainer": (
        {"PET_NNODES": "2", "PET_NODE_RANK": "1", "PET_NPROC_PER_NODE": "4", "JOB_COMPLETION_INDEX": "1"},
        "Kubeflow Trainer", node(1, 2),
    ),
    "Kubernetes Indexed Job": (
        {"JOB_COMPLETION_INDEX": "4", "HOSTNAME": "train-4"}, "Kubernetes Indexed Job", place(4, None, 0, 1, 4),
    ),
    "OpenPAI": (PAI, "OpenPAI", place(3, 5, 0, 1, 3)),
    "OpenPAI's other name": (
        {"PAI_CURRENT_TASK_ROLE_NAME": "train", "PAI_TASK_INDEX": "1", "PAI_TASK_ROLE_TASK_COUNT_train": "2"},
        "OpenPAI", place(1, 2, 0, 1, 1),
    ),
    "paipdb's name": (
        {"PAI_CURRENT_TASK_ROLE_NAME": "train", "PAI_TASK_ROLE_INDEX": "1", "PAI_TASK_ROLE_TASK_COUNT_train": "2"},
        "OpenPAI", place(1, 2, 0, 1, 1),
    ),
    "Azure Batch by index": (BATCH | {"AZ_BATCHAI_TASK_INDEX": "1"}, "Azure Batch", node(1, 3)),
    "Azure Batch by address": (BATCH | {"AZ_BATCHAI_NODE_IP": "10.0.0.6"}, "Azure Batch", node(2, 3)),
    "Azure Batch by host list": (
        {"AZ_BATCH_HOST_LIST": "10.0.0.4,10.0.0.5", "AZ_BATCHAI_NODE_IP": "10.0.0.5"}, "Azure Batch", node(1, 2),
    ),
    "Azure Batch master": (BATCH | {"AZ_BATCH_IS_CURRENT_NODE_MASTER": "true"}, "Azure Batch", node(0, 3)),
    "SkyPilot": (
        {"SKYPILOT_NODE_RANK": "1", "SKYPILOT_NUM_NODES": "2", "SKYPILOT_NUM_GPUS_PER_NODE": "8"},
        "SkyPilot", node(1, 2),
    ),
    "dstack": ({"DSTACK_NODE_RANK": "1", "DSTACK_NODES_NUM": "2", "DSTACK_GPUS_PER_NODE": "8"}, "dstack", node(1, 2)),
    "AWS Batch": ({"AWS_BATCH_JOB_NODE_INDEX": "1", "AWS_BATCH_JOB_NUM_NODES": "2"}, "AWS Batch", node(1, 2)),
    "SageMaker": ({"SM_HOSTS": '["algo-1", "algo-2"]', "SM_CURRENT_HOST": "algo-2"}, "SageMaker", node(1, 2)),
    "nobody": ({"PATH": "/bin", "HOME": "/root"}, SINGLE, place(0, 1, 0, 1, 0)),
}  # fmt: skip

TRAPS = {
    "ours before torchrun": (TORCHRUN | {"RELAY_RANK": "0"}, "RELAY_RANK", place(0, None)),
    "torchrun inside MPI inside Slurm": (TORCHRUN | OPEN_MPI | SLURM, "torchrun", place(3, 8, 1, 2, 1)),
    "torchrun inside a PyTorchJob inside an indexed job": (
        TORCHRUN | {"PET_NNODES": "2", "PET_NODE_RANK": "0", "JOB_COMPLETION_INDEX": "0"},
        "torchrun", place(3, 8, 1, 2, 1),
    ),
    "torchrun in Azure ML": (TORCHRUN | {"AZUREML_RUN_ID": "a", "NODE_RANK": "1"}, "torchrun", place(3, 8, 1, 2, 1)),
    "Open MPI inside Slurm": (OPEN_MPI | SLURM, "Open MPI", place(5, 8, 1, 4, 1)),
    "MPICH inside Slurm, which started its proxies": (MPICH | SLURM, "MPICH", place(5, 8, 1, 4, 1)),
    "Intel MPI inside Slurm": (MPICH | {"I_MPI_HYDRA_UUID": "1"} | SLURM, "Intel MPI", place(5, 8, 1, 4, 1)),
    "RANK of a node and a launcher": ({"RANK": "1", "WORLD_SIZE": "2"} | OPEN_MPI, "Open MPI", place(5, 8, 1, 4, 1)),
    "RANK and somebody else's size": (
        {"RANK": "1", "OMPI_COMM_WORLD_SIZE": "8", "PMI_SIZE": "8"}, SINGLE, place(0, 1, 0, 1, 0),
    ),
    "no rank below the world size": (TORCHRUN | {"RANK": "8"}, SINGLE, place(0, 1, 0, 1, 0)),
    "a wrong row and a right one": (TORCHRUN | {"RANK": "8"} | OPEN_MPI, "Open MPI", place(5, 8, 1, 4, 1)),
    "a negative rank": (OPEN_MPI | {"OMPI_COMM_WORLD_RANK": "-1"}, SINGLE, place(0, 1, 0, 1, 0)),
    "a world of none": ({"RANK": "0", "WORLD_SIZE": "0", "LOCAL_RANK": "0"}, SINGLE, place(0, 1, 0, 1, 0)),
    "words": (MPICH | {"PMI_SIZE": "eight"}, SINGLE, place(0, 1, 0, 1, 0)),
    "digits of another script": (MPICH | {"PMI_RANK": "\u0663"}, SINGLE, place(0, 1, 0, 1, 0)),
    "a number as long as a book": (MPICH | {"PMI_RANK": "1" * 5000}, SINGLE, place(0, 1, 0, 1, 0)),
    "empty values": (dict.fromkeys(TORCHRUN | OPEN_MPI, ""), SINGLE, place(0, 1, 0, 1, 0)),
    "a local rank that is not a number": (TORCH | {"LOCAL_RANK": "one"}, "torch.distributed", place(3, 8)),
    "a local rank beyond the local size": (TORCHRUN | {"LOCAL_RANK": "2"}, "torchrun", place(3, 8, None, None, 1)),
    "a local size beyond the world size": (
        OPEN_MPI | {"OMPI_COMM_WORLD_LOCAL_SIZE": "9"}, "Open MPI", place(5, 8, 1),
    ),
    "a node beyond the world size": (
        TORCH | {"AZUREML_RUN_ID": "a", "NODE_RANK": "8"}, "Azure ML PyTorch", place(3, 8, 1),
    ),
    "nodes of different size": (OPEN_MPI | {"OMPI_COMM_WORLD_SIZE": "7"}, "Open MPI", place(5, 7, 1, 4)),
    "ranks dealt out to nodes in turn": (
        OPEN_MPI | {"OMPI_COMM_WORLD_LOCAL_RANK": "2", "OMPI_COMM_WORLD_NODE_RANK": "2"},
        "Open MPI", place(5, 8, 2, 4),
    ),
    "a batch script of Slurm": (
        {"SLURM_PROCID": "0", "SLURM_NTASKS": "4", "SLURM_JOB_ID": "77"}, SINGLE, place(0, 1, 0, 1, 0),
    ),
    "an interactive shell of Slurm": (SLURM | {"SLURM_STEP_ID": "4294967290"}, SINGLE, place(0, 1, 0, 1, 0)),
    "Slurm's tasks per node as a list": (
        SLURM | {"SLURM_NTASKS_PER_NODE": "2(x2)"}, "Slurm", place(2, 4, 0, None, 1),
    ),
    "Lightning on a node of unknown size": (
        {"WORLD_SIZE": "8", "LOCAL_RANK": "3", "NODE_RANK": "1"}, SINGLE, place(0, 1, 0, 1, 0),
    ),
    "an elastic number of nodes": (
        {"PET_NNODES": "1:4", "PET_NODE_RANK": "1", "JOB_COMPLETION_INDEX": "1"},
        "Kubernetes Indexed Job", place(1, None, 0, 1, 1),
    ),
    "the master text false": (
        BATCH | {"AZ_BATCH_IS_CURRENT_NODE_MASTER": "false", "AZ_BATCHAI_NODE_IP": "10.0.0.5"},
        "Azure Batch", node(1, 3),
    ),
    "the master text False, and no number": (
        BATCH | {"AZ_BATCH_IS_CURRENT_NODE_MASTER": "False"}, "Azure Batch", node(2, 3),
    ),
    "not the master, but the first of the list": (
        BATCH | {"AZ_BATCH_IS_CURRENT_NODE_MASTER": "false", "AZ_BATCHAI_NODE_IP": "10.0.0.4"},
        "Azure Batch", node(2, 3),
    ),
    "not the master, of nobody knows how many": (
        {"AZ_BATCH_IS_CURRENT_NODE_MASTER": "false"}, "Azure Batch", node(1, None),
    ),
    "the master is not the first of the list": (
        BATCH | {"AZ_BATCH_MASTER_NODE": "10.0.0.6:6000", "AZ_BATCHAI_NODE_IP": "10.0.0.4"}, "Azure Batch", node(1, 3),
    ),
    "a task of Azure Batch on one node": (
        {"AZ_BATCH_NODE_ID": "tvm-1", "AZ_BATCH_JOB_ID": "j"}, SINGLE, place(0, 1, 0, 1, 0),
    ),
    "OpenPAI without the sizes of its roles": (
        PAI | {"PAI_TASK_ROLE_TASK_COUNT_ps": ""}, SINGLE, place(0, 1, 0, 1, 0),
    ),
    "OpenPAI's task beyond its role": (
        PAI | {"PAI_CURRENT_TASK_ROLE_NAME": "ps", "PAI_CURRENT_TASK_ROLE_CURRENT_TASK_INDEX": "2"},
        SINGLE, place(0, 1, 0, 1, 0),
    ),
    "OpenPAI's task in a role that its job does not have": (
        PAI | {"PAI_CURRENT_TASK_ROLE_NAME": "chief"}, SINGLE, place(0, 1, 0, 1, 0),
    ),
    "TensorFlow of a thousand brackets": ({"TF_CONFIG": "[" * 100_000}, SINGLE, place(0, 1, 0, 1, 0)),
    "TensorFlow without a cluster": ({"TF_CONFIG": '{"task": {"type": "worker"}}'}, SINGLE, place(0, 1, 0, 1, 0)),
    "TensorFlow's hosts as a number": (tensorflow("worker", 0, {"worker": 1}), SINGLE, place(0, 1, 0, 1, 0)),
    "TensorFlow beyond its cluster": (tensorflow("worker", 3), SINGLE, place(0, 1, 0, 1, 0)),
    "TensorFlow's flag for an index": (tensorflow("worker", True), SINGLE, place(0, 1, 0, 1, 0)),
    "a host that SageMaker does not have": (
        {"SM_HOSTS": '["algo-1"]', "SM_CURRENT_HOST": "algo-2"}, SINGLE, place(0, 1, 0, 1, 0),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("environ", "launcher", "expected"), [*ROWS.values(), *TRAPS.values()], ids=[*ROWS, *TRAPS])
def test_identity(environ, launcher, expected):
    """A launcher's variables name the process, and no other launcher's do."""
    identity = identify(environ)
    assert (launcher, expected) == (identity.launcher, identity[:5])


def test_every_row_has_a_case():
    """No launcher is in the table without one."""
    assert {row.launcher for row in TABLE} == {launcher for _, launcher, _ in ROWS.values()} - {SINGLE}


NODE_LEVEL = {
    "RANK of a node", "Kubeflow Trainer", "OpenPAI", "Kubernetes Indexed Job", "SkyPilot", "dstack", "AWS Batch",
    "SageMaker", "Azure Batch",
}  # fmt: skip


@pytest.mark.parametrize("environ", [environ for environ, _, _ in ROWS.values()], ids=ROWS)
def test_node_level(environ):
    """An identity that counts nodes is marked as such."""
    identity = identify(environ)
    assert (identity.launcher in NODE_LEVEL) == identity.node_level


@pytest.mark.parametrize(
    ("environ", "label"),
    [
        (TORCHRUN, "rank 3/8"),
        ({"RELAY_RANK": "3"}, "rank 3"),
        ({"RANK": "1", "WORLD_SIZE": "2"}, "node 1/2"),
        ({"JOB_COMPLETION_INDEX": "4"}, "node 4"),
        ({}, "single"),
    ],
)
def test_label(environ, label):
    """A label shows what is counted, and how many there are where that is known."""
    assert label == identify(environ).label


def test_master():
    """The first rank is the master; so is a process on its own; a node whose variable is "false" is not."""
    assert identify({}).is_master
    assert identify(TORCHRUN | {"RANK": "0", "LOCAL_RANK": "0"}).is_master
    assert not identify(TORCHRUN).is_master
    assert not identify(BATCH | {"AZ_BATCH_IS_CURRENT_NODE_MASTER": "false"}).is_master


@pytest.mark.parametrize(
    ("environ", "run_id"),
    [
        ({"TORCHELASTIC_RUN_ID": "job"}, "job"),
        ({"TORCHELASTIC_RUN_ID": "none"}, None),
        ({"TORCHELASTIC_RUN_ID": "none", "SLURM_JOB_ID": "77"}, "77"),
        ({"TORCHELASTIC_RUN_ID": "job", "AZUREML_RUN_ID": "amber_fox"}, "amber_fox"),
        ({"AZUREML_RUN_ID": "amber_fox", "RELAY_RUN_ID": "mine"}, "mine"),
        ({"SLURM_JOB_ID": "7\x1b[2J", "PAI_JOB_NAME": "mnist"}, "mnist"),
        ({"RAY_JOB_ID": "01000000"}, "01000000"),
        ({"JOB_COMPLETION_INDEX": "4", "HOSTNAME": "train-vit-4"}, "train-vit"),
        ({"JOB_COMPLETION_INDEX": "4", "HOSTNAME": "else"}, None),
        ({}, None),
    ],
)
def test_run(environ, run_id):
    """A run is called as its platform calls it, else as its launcher does."""
    assert run_id == identify(environ).run_id


@pytest.mark.parametrize(
    ("environ", "restart"),
    [
        ({"TORCHELASTIC_RESTART_COUNT": "2"}, 2),
        ({"SLURM_RESTART_COUNT": "1"}, 1),
        ({"TORCHELASTIC_RESTART_COUNT": "many"}, 0),
        ({}, 0),
    ],
)
def test_restart(environ, restart):
    """A process knows how often it was started again."""
    assert restart == identify(environ).restart == identify(TORCHRUN | environ).restart


def test_explanation():
    """It names the launchers that are chosen, not used or dropped and why, their variables, and the logical port."""
    lines = explain(TORCHRUN | OPEN_MPI | {"SLURM_PROCID": "0"}, 5678)
    assert "rank 3/8, local rank 1/2, node 1, run job" == lines[0]
    assert lines[1].startswith("chosen: torchrun: TORCHELASTIC_RUN_ID=job RANK=3 WORLD_SIZE=8 LOCAL_RANK=1")
    assert any(
        line.startswith("not used: Open MPI (rank 5/8), because torchrun takes precedence: OMPI_") for line in lines
    )
    assert "dropped: Slurm, because SLURM_STEP_ID is not set: SLURM_PROCID=0" in lines
    assert not any("RANK of a node" in line for line in lines)
    assert "logical port: 5678 + 3 = 5681" == lines[-1]


def test_explanation_of_nothing():
    """Where no launcher was at work, it states how a rank can be named."""
    expected = "chosen: none, because no launcher has set a rank; to define a rank, set RELAY_RANK and RELAY_WORLD_SIZE"
    assert expected in explain({}, 5678)


def test_explanation_of_a_guess():
    """A number that is a guess is marked as one, and a note states that several processes of a node share it."""
    text = "\n".join(explain(BATCH | {"AZ_BATCH_IS_CURRENT_NODE_MASTER": "false"}, 5678))
    assert "assumed to be the last node" in text
    assert "note: this rank identifies a node" in text


def test_explanation_of_a_port_that_does_not_exist():
    """It states that the rank has no port."""
    assert "no logical port: rank 9 has no port: 65530 + 9 is above 65535" == explain({"RELAY_RANK": "9"}, 65530)[-1]


def test_explanation_shows_no_other_variable():
    """The tokens in a job's environment are never shown, and control characters stay text."""
    lines = explain(TORCHRUN | {"AZUREML_RUN_TOKEN": "t0k3n", "PMI_RANK": "\x1b[2J"}, 5678)
    assert "t0k3n" not in "".join(lines)
    assert "dropped: PMI, because PMI_RANK is not a number: PMI_RANK='\\x1b[2J'" in lines
