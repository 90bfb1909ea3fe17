"""A step that estimates pi; each process of a distributed step draws other points."""

import argparse
import json
import os
import random

import relay_agent


def main() -> None:
    """Wait for a debugger in a debug run, then estimate pi."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--points", type=int, default=100_000)
    relay_agent.add_debug_arguments(parser)
    options = parser.parse_args()

    # Rank 0 waits for a debugger; the port of rank n is --debug-port plus n, with MPI as with TensorFlow.
    relay_agent.start_remote_debugging_from_args()
    print(f"{role()}: pi is about {estimate(options.points):.4f}", flush=True)


def estimate(points: int) -> float:
    """Return the share of random points in the circle, times four."""
    generator = random.Random(role())  # noqa: S311 - not for secrets
    inside = sum(generator.random() ** 2 + generator.random() ** 2 < 1 for _ in range(points))
    return 4 * inside / points


def role() -> str:
    """Return what this process is in its job. Horovod over MPI has `hvd.rank()` for the same number."""
    if "TF_CONFIG" in os.environ:
        task = json.loads(os.environ["TF_CONFIG"])["task"]
        return f"{task['type']} {task['index']}"
    return f"rank {os.environ.get('OMPI_COMM_WORLD_RANK', '0')}"


if __name__ == "__main__":
    main()
