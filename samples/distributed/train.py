"""Fits a plane to points with distributed torch on CPUs; every rank has its own points.

    torchrun --standalone --nproc-per-node 4 train.py

This file contains no code for debugging.
"""

import argparse

import torch
import torch.distributed as dist

PLANE = torch.tensor([2.0, -3.0, 0.5])
"""The weights that the ranks should find."""


def main(steps: int) -> None:
    """Train on all ranks; each rank prints its loss."""
    dist.init_process_group("gloo")
    try:
        loss = train(steps)
        print(f"rank {dist.get_rank()} of {dist.get_world_size()}: loss {loss:.4f}", flush=True)
    finally:
        dist.destroy_process_group()


def train(steps: int) -> float:
    """Return this rank's last loss."""
    rank = dist.get_rank()
    torch.manual_seed(rank)
    points = torch.cat([torch.rand(100, 2), torch.ones(100, 1)], dim=1)
    heights = points @ PLANE
    weights = torch.zeros(3)
    for step in range(1, steps + 1):
        loss = train_step(weights, points, heights, rank, step)
    return loss


def train_step(
    weights: torch.Tensor,
    points: torch.Tensor,
    heights: torch.Tensor,
    rank: int,  # noqa: ARG001 - shown by the debugger, and used in conditional breakpoints, such as step == 3
    step: int,  # noqa: ARG001
) -> float:
    """Take one step of gradient descent on all ranks' points, and return this rank's loss before the step."""
    error = points @ weights - heights
    loss = error.square().mean().item()
    gradient = points.T @ error / len(points)
    dist.all_reduce(gradient)  # collective operation
    weights -= gradient / dist.get_world_size()
    return loss


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=300)
    main(parser.parse_args().steps)
