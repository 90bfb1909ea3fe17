"""Facts about checksums before the steps of torch's own optimizers."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from relay_core.agent_api.evaluation import Selection
from relay_core.agent_api.watch import Watched
from tests.support.jobs.watching import Client
from tests.support.machine.deadline import DEADLINE

torch = pytest.importorskip("torch")

NO_NUMBER = "neither the optimizer nor torch.distributed counts the steps, so they have no number"
SHARDED = """
import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor, Replicate, Shard, init_device_mesh
from torch.testing._internal.distributed.fake_pg import FakeStore
from relay_agent.trigger.divergence import compare
from relay_core.agent_api.evaluation import Selection

dist.init_process_group("fake", store=FakeStore(), rank=1, world_size=4)
mesh = init_device_mesh("cpu", (2, 2))


def shown(*placements):
    weight = DTensor.from_local(torch.ones(2, 2), mesh, placements, run_check=False)
    found = compare({"weight": weight, "bias": torch.zeros(2)}, Selection())
    print(found.ranks, found.value.leaves, found.value.sharded)


shown(Replicate(), Shard(0))
shown(Shard(0), Shard(1))
shown(Replicate(), Replicate())
"""


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    """A client of watches; at the end, torch has no hook of theirs."""
    found = Client(tmp_path / "train.py")
    yield found
    found.table.forget()
    found.table._steps.set_hooks([])


def ask(client: Client, expression: str = "net", **fields: Any) -> Watched:
    """Ask about the value before steps."""
    asked: dict[str, Any] = {"id": "1", "file": "", "line": 0, "selection": Selection(), **fields}
    return client.ask("", expression, **asked)


def train(kind: Any, steps: int, plant: int = 0, **options: Any) -> None:
    """Take steps, and change a weight of the model after one of them."""
    net = torch.nn.Linear(4, 3)
    optimizer = kind(net.parameters(), lr=0.0, **options)
    for number in range(1, steps + 1):
        net(torch.ones(5, 4)).sum().backward()
        optimizer.step()
        if number == plant:
            net.weight.detach()[1, 2] += 1


def test_steps_of_an_optimizer_that_counts(client: Client) -> None:
    """Steps with a multiple as their number are due, and a weight that has changed changes the checksum."""
    assert ("optimizer steps", "", "") == (ask(client, every=3).place, "", "")
    train(torch.optim.AdamW, 10, plant=6)
    hits = ask(client, every=3).hits
    assert [f"before AdamW.step() number {number}" for number in (3, 6, 9)] == [hit.text for hit in hits]
    digests = [hit.compared.value.digest for hit in hits if hit.compared]
    assert digests[0] == digests[1] != digests[2]
    assert [("all", Selection())] * 3 == [(hit.compared.ranks, hit.compared.selection) for hit in hits if hit.compared]
    assert ["alice is watching optimizer steps"] == client.logged


def test_part_of_the_value(client: Client) -> None:
    """While a part is requested, each step is due, and the checksum is that of the part."""
    ask(client, every=100)
    ask(client, every=100, selection=Selection(1, 2))
    train(torch.optim.AdamW, 4)
    hits = ask(client, every=100, selection=Selection(1, 2)).hits
    assert ["before AdamW.step() number 3", "before AdamW.step() number 4"] == [hit.text for hit in hits]
    [leaf, _] = [hit.compared.value.leaf for hit in hits if hit.compared]
    assert leaf is not None
    assert "bias" == leaf.name


def test_steps_that_nothing_counts(client: Client) -> None:
    """Without a count and a process group, the watch ends with the reason, and the job continues."""
    ask(client, every=2)
    train(torch.optim.SGD, 3)
    answer = ask(client, every=2)
    assert f"because the step cannot be checked: ConfigurationError: {NO_NUMBER}" == answer.ended
    assert () == answer.hits


def test_expression_that_fails(client: Client) -> None:
    """The exception is reported with the step."""
    ask(client, "absent", every=2)
    train(torch.optim.AdamW, 5)
    [hit] = ask(client, "absent", every=2).hits
    assert ("before AdamW.step() number 4", "NameError: name 'absent' is not defined") == (hit.text, hit.error)
    assert hit.compared is None


def test_sharded_values() -> None:
    """Ranks that hold the same part are compared with each other; if no others do, only the rest of the value is."""
    run = subprocess.run([sys.executable, "-c", SHARDED], capture_output=True, text=True, timeout=DEADLINE, check=False)
    assert "1,3 2 0\nall 2 1\nall 2 0\n" == run.stdout, run.stderr
