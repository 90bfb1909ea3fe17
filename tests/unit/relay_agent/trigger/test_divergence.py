"""Facts about checksums before the steps of torch's own optimizers."""

from __future__ import annotations

import copy
import math
import subprocess
import sys
from typing import Any

import pytest

from relay_agent.trigger.watch import MAX_THINNING, InstalledWatch
from relay_core.agent_api.evaluation import Selection
from relay_core.agent_api.watch import Watch, Watched
from tests.support.jobs.watching import Client
from tests.support.machine.deadline import DEADLINE

torch = pytest.importorskip("torch")

SHARDED = """
import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor, Replicate, Shard, init_device_mesh
from torch.testing._internal.distributed.fake_pg import FakeStore
from relay_agent.trigger.divergence import compare
from relay_core.agent_api.evaluation import Selection

dist.init_process_group("fake", store=FakeStore(), rank=1, world_size=4)
mesh = init_device_mesh("cpu", (2, 2))


def shown(*placements, selection=Selection()):
    weight = DTensor.from_local(torch.ones(2, 2), mesh, placements, run_check=False)
    found = compare({"weight": weight, "bias": torch.zeros(2)}, selection)
    print(found.ranks, found.value.leaves, found.value.sharded)


shown(Replicate(), Shard(0))
shown(Shard(0), Shard(1))
shown(Replicate(), Replicate())
shown(Shard(0), Shard(1), selection=Selection(0, 2))
"""


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


def test_optimizer_that_does_not_count(client: Client) -> None:
    """Its steps are never due, and a note names it; those of another optimizer are compared."""
    ask(client, every=2)
    train(torch.optim.SGD, 4)
    assert "SGD does not count its steps, so those of the ranks cannot be compared" == ask(client, every=2).note
    train(torch.optim.AdamW, 5)
    assert ["before AdamW.step() number 4"] == [hit.text for hit in ask(client, every=2).hits]


def networks(*shapes: int) -> list[tuple[Any, Any]]:
    """Return networks with these numbers of inputs, each with an optimizer."""
    nets = [torch.nn.Linear(shape, 2) for shape in shapes]
    return [(net, torch.optim.Adam(net.parameters())) for net in nets]


def take_turns(pairs: list[tuple[Any, Any]], steps: int) -> None:
    """Let optimizers take steps in turns."""
    for _ in range(steps):
        for net, optimizer in pairs:
            net(torch.ones(1, net.in_features)).sum().backward()
            optimizer.step()


def test_several_optimizers(client: Client) -> None:
    """Steps of optimizers of the same class have different names, if they have parameters of different sizes."""
    ask(client, every=2)
    take_turns(networks(3, 4), 4)
    names = [f"before Adam.step() number 4 of the optimizer with {elements} elements" for elements in (8, 10)]
    assert names == [hit.text for hit in ask(client, every=2).hits]


def test_optimizers_of_equal_size(client: Client) -> None:
    """Steps of optimizers of a class with parameters of equal size are not compared, and a note reports that."""
    ask(client, every=2)
    take_turns(networks(3, 3), 4)
    answer = ask(client, every=2)
    assert ((), "2 Adam optimizers have parameters of 8 elements each, so their steps cannot be compared") == (
        answer.hits,
        answer.note,
    )


def test_optimizer_that_is_made_again(client: Client) -> None:
    """The steps of its successor are compared."""
    ask(client, every=2)
    take_turns(networks(3), 5)
    take_turns(networks(3), 5)
    assert ["before Adam.step() number 4"] * 2 == [hit.text for hit in ask(client, every=2).hits]


def test_parameter_that_is_frozen_later(client: Client) -> None:
    """The count is that of a parameter that the step changes."""
    ask(client, every=4)
    [(net, optimizer)] = networks(3)
    take_turns([(net, optimizer)], 3)
    net.weight.requires_grad_(False)
    optimizer.zero_grad()
    take_turns([(net, optimizer)], 6)
    names = [f"before Adam.step() number {number}" for number in (4, 8)]
    assert names == [hit.text for hit in ask(client, every=4).hits]


def test_steps_without_gradients(client: Client) -> None:
    """An optimizer that counts is not taken for another one because some steps have no gradients."""
    ask(client, every=2)
    [(net, optimizer)] = networks(3)
    for _ in range(4):
        optimizer.step()
        optimizer.zero_grad()
        take_turns([(net, optimizer)], 2)
        optimizer.zero_grad()
    answer = ask(client, every=2)
    assert "" == answer.note
    assert answer.hits


def test_steps_that_take_too_long() -> None:
    """Fewer steps are due, by a power of 2, so that those of one rank are due in all that are faster."""
    watch = InstalledWatch(Watch(id="1", expression="net", every=5, selection=Selection()), print)
    assert (1, 5) == (watch.reached(), watch.every)
    watch._next = math.inf
    assert [(0, 10), (0, 20)] == [(watch.reached(), watch.every) for _ in range(2)]
    for _ in range(20):
        watch.reached()
    assert 5 * MAX_THINNING == watch.every


def test_count_that_is_set_back(client: Client) -> None:
    """After a checkpoint was loaded, steps are due by their new numbers."""
    ask(client, every=3)
    [(net, optimizer)] = networks(3)
    take_turns([(net, optimizer)], 2)
    saved = copy.deepcopy(optimizer.state_dict())
    take_turns([(net, optimizer)], 2)
    optimizer.load_state_dict(saved)
    take_turns([(net, optimizer)], 5)
    names = [f"before Adam.step() number {number}" for number in (3, 6)]
    assert names == [hit.text for hit in ask(client, every=3).hits]


def test_state_that_cannot_be_read(client: Client) -> None:
    """A note reports it, and neither the job nor the watch ends."""
    ask(client, every=2)
    [(net, optimizer)] = networks(3)
    optimizer.state = None
    hook = sys.modules["torch.optim.optimizer"]._global_optimizer_pre_hooks
    next(iter(hook.values()))(optimizer, (), {})
    net(torch.ones(1, 3)).sum().backward()
    next(iter(hook.values()))(optimizer, (), {})
    answer = ask(client, every=2)
    assert answer.note.startswith("an optimizer cannot be read, so its steps are not compared: AttributeError: ")
    assert "" == answer.ended


def test_value_that_takes_too_long(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """The checksums are given up after their time limit, which ends the watch."""
    monkeypatch.setattr("relay_agent.trigger.divergence.MAX_SECONDS", 0.0)
    monkeypatch.setattr("relay_agent.trigger.watch.MAX_SECONDS", 0.0)
    ask(client, every=2)
    train(torch.optim.AdamW, 5)
    answer = ask(client, every=2)
    assert "TimeoutError: the checksums took longer than 0 s" == answer.hits[0].error
    assert answer.ended.startswith("because one evaluation took ")


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
    assert "1,3 2 0\nall 2 1\nall 2 0\nall 2 1\n" == run.stdout, run.stderr
