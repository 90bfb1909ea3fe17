"""Real launchers start real processes, and each process is named from what its launcher really sets."""

import importlib.util
import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.support.jobs import mpi
from tests.support.machine.deadline import DEADLINE
from tests.support.machine.ports import free_port
from tests.support.machine.programs import environment

ROOT = Path(__file__).parents[2]

WHO_AM_I = """
    import json, os, sys
    sys.path.insert(0, ROOT)
    from relay_agent.settings.ranks import identify
    sys.stdout.write(json.dumps(identify(os.environ)._asdict()) + "\\n")
"""


def program(code: str) -> str:
    return textwrap.dedent(code).replace("ROOT", repr(str(ROOT)))


def run_ranks(launcher: str, n: int, *options: str) -> list[dict]:
    """Run ranks that say who they are, and return that in the order of their ranks."""
    mpi.need(launcher)
    argv, variables = mpi.mpiexec(launcher, n, [sys.executable, "-c", program(WHO_AM_I)], options=options)
    done = subprocess.run(
        argv, env=variables, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=DEADLINE, check=False
    )
    assert (0, "") == (done.returncode, done.stderr)
    return sorted(map(json.loads, done.stdout.splitlines()), key=lambda identity: identity["rank"])


@pytest.mark.parametrize("launcher", mpi.LAUNCHERS)
def test_three_ranks(launcher):
    """Three ranks on one node know their places, and that they belong together."""
    ranks = run_ranks(launcher, 3)
    assert [(rank, 3, rank, 3, 0) for rank in range(3)] == [tuple(identity.values())[:5] for identity in ranks]
    assert {mpi.LAUNCHERS[launcher]} == {identity["launcher"] for identity in ranks}
    assert 1 == len({identity["run_id"] for identity in ranks})


def test_two_nodes():
    """Four ranks on two nodes know their nodes, although only their local ranks show them."""
    ranks = run_ranks("mpich", 4, "-hosts", "a:2,b:2")
    assert [(0, 0, 0), (1, 1, 0), (2, 0, 1), (3, 1, 1)] == [
        (identity["rank"], identity["local_rank"], identity["node_rank"]) for identity in ranks
    ]


# language: keep - source of a job
TRAINING = """
    import json, os, pathlib, sys, time
    sys.path.insert(0, ROOT)
    from relay_agent.settings.ranks import identify
    me, said = identify(os.environ), pathlib.Path(sys.argv[1])
    crashed = said / "crashed"
    turn = "second" if crashed.exists() else "first"
    said.joinpath(f"{turn}.{me.rank}").write_text(json.dumps(me))
    if turn == "first":
        while me.rank != 3 or len(list(said.glob("first.*"))) < 4:
            time.sleep(0.05)
        crashed.touch()
        sys.exit("rank 3 crashes once")
"""


def test_torchrun(tmp_path):
    """Two torchruns of two processes name four ranks on two nodes, and the node that crashed counts its restart.

    The other node starts its ranks again as well, but torchrun does not count that there.
    """
    if not importlib.util.find_spec("torch"):
        pytest.skip("torch is not installed; run 'make extras'")
    script, reports = tmp_path / "train.py", tmp_path / "reports"
    script.write_text(program(TRAINING))
    reports.mkdir()
    rendezvous = ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{free_port()}", "--rdzv-id", "two-nodes"]
    argv = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "2", *rendezvous]
    argv += ["--local-addr", "127.0.0.1", "--max-restarts", "1", str(script), str(reports)]
    nodes = [subprocess.Popen(argv, env=environment(OMP_NUM_THREADS="1"), stderr=subprocess.PIPE) for _ in range(2)]
    try:
        stderr = [node.communicate(timeout=DEADLINE)[1].decode() for node in nodes]
    finally:
        for node in nodes:
            node.terminate()  # torchrun ends its ranks then.
            node.wait(DEADLINE)
    assert [0, 0] == [node.returncode for node in nodes], stderr
    restarts = {}
    for turn in ("first", "second"):
        ranks = [tuple(json.loads(reports.joinpath(f"{turn}.{rank}").read_text())) for rank in range(4)]
        assert [(rank, 4, rank % 2, 2, rank // 2) for rank in range(4)] == [identity[:5] for identity in ranks]
        assert {("torchrun", "two-nodes", False)} == {(*identity[5:7], identity[8]) for identity in ranks}
        restarts[turn] = sorted(identity[7] for identity in ranks)
    assert {"first": [0, 0, 0, 0], "second": [0, 0, 1, 1]} == restarts
