"""A training job for `torchrun`, whose rank 0 answers each line of stdin, a number of steps, with their seconds.

While the ranks wait for an order, they execute Python code, as they do in a training loop.
"""

from __future__ import annotations

import select
import sys
from collections.abc import Iterator
from time import perf_counter

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from tests.bench.workloads import answer

WIDTH, LAYERS, ROWS = 1024, 4, 64
"""4.2 million parameters."""
POLL = 0.01
"""Seconds."""


def orders() -> Iterator[int]:
    """Yield the numbers of steps that rank 0 reads, in all ranks, until its stdin ends."""
    while True:
        is_ready = dist.get_rank() == 0 and select.select([sys.stdin], [], [], POLL)[0]
        order = torch.tensor([int(sys.stdin.readline() or -1) if is_ready else 0])
        dist.broadcast(order, 0)
        if order < 0:
            return
        if order:
            yield int(order)


def main() -> None:
    """Train on request."""
    dist.init_process_group("gloo")
    layers = [module for _ in range(LAYERS) for module in (torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU())]
    model = DistributedDataParallel(torch.nn.Sequential(*layers))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    batch = torch.randn(ROWS, WIDTH)
    if dist.get_rank() == 0:
        answer("ready")
    for steps in orders():
        started = perf_counter()
        for _ in range(steps):
            optimizer.zero_grad()
            model(batch).square().mean().backward()
            optimizer.step()
        if dist.get_rank() == 0:
            answer(perf_counter() - started)
    dist.destroy_process_group()


def elsewhere(number: int) -> int:
    """Nobody calls this."""
    return number + 1


if __name__ == "__main__":
    main()
