"""Step 2, a parallel component: add the squared radius to every point, one mini-batch of files at a time.

Azure ML's driver imports this file on every node, calls `init` once in each process and `run` for each mini-batch. The
arguments of the driver itself are on the same command line, so unknown ones are passed over.
"""

import argparse
import csv
import os
from pathlib import Path

import relay_agent

features: Path


def init() -> None:
    """Prepare this process."""
    global features  # noqa: PLW0603 - the driver's interface has no other place for it
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--features", type=Path, required=True, help="folder for the results")
    features = parser.parse_known_args()[0].features
    features.mkdir(parents=True, exist_ok=True)
    if is_master_node():
        relay_agent.start_remote_debugging_from_args()


def run(mini_batch: list[str]) -> list[str]:
    """Handle some files, and return one line for each."""
    return [featurize(Path(path)) for path in mini_batch]


def featurize(path: Path) -> str:
    """Handle one file."""
    with path.open(newline="") as file:
        points = [(float(x), float(y), int(label)) for x, y, label in csv.reader(file)]
    rows = [(x, y, x * x + y * y, label) for x, y, label in points]
    with (features / path.name).open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    return f"{path.name}: {len(rows)} rows"


def is_master_node() -> bool:
    """Whether this is the one node that debugs: all nodes are given the same port.

    Azure ML says so in text, and `bool("false")` is True.
    """
    return os.environ.get("AZ_BATCH_IS_CURRENT_NODE_MASTER", "true").lower() == "true"
