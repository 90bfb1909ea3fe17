"""Step 2, a parallel component: add the squared radius to every point, one mini-batch of files at a time.

Azure ML's driver imports this file on every node, calls `init` once in each process and `run` for each mini-batch. The
driver's own arguments are on the same command line, so unknown arguments are ignored.
"""

import argparse
import csv
import os
from pathlib import Path

import relay_agent
from relay_agent.settings.ranks import SINGLE, identify

features: Path
UNKNOWN_NODE = (
    "not debugged, because it is unknown whether this is the first node (AZ_BATCH_IS_CURRENT_NODE_MASTER is missing); "
    "if instance_count is 1, set that variable to true in the step's environment_variables"
)


def init() -> None:
    """Prepare this process."""
    global features  # noqa: PLW0603 - the driver's interface has no other place for it
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--features", type=Path, required=True, help="folder for the results")
    relay_agent.add_debug_arguments(parser)
    options = parser.parse_known_args()[0]
    features = options.features
    features.mkdir(parents=True, exist_ok=True)
    first = is_first_node()
    if first:
        relay_agent.start_remote_debugging_from_args()
    elif first is None and options.is_debug:
        print(f"featurize: {UNKNOWN_NODE}", flush=True)


def run(mini_batch: list[str]) -> list[str]:
    """Process some files, and return one line for each file."""
    return [featurize(Path(path)) for path in mini_batch]


def featurize(path: Path) -> str:
    """Process one file."""
    with path.open(newline="") as file:
        points = [(float(x), float(y), int(label)) for x, y, label in csv.reader(file)]
    rows = [(x, y, x * x + y * y, label) for x, y, label in points]
    with (features / path.name).open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    return f"{path.name}: {len(rows)} rows"


def is_first_node() -> bool | None:
    """Return whether this is the first node, or None if unknown. Only one node is debugged, as all have the same port.

    AZ_BATCH_IS_CURRENT_NODE_MASTER, which Azure ML documents, is the string "true" or "false" (and `bool("false")` is
    True). If it is missing, other variables of Azure Batch or MPI identify the node, and a single node is the first.
    """
    master = os.environ.get("AZ_BATCH_IS_CURRENT_NODE_MASTER", "").strip().lower()
    if master in {"true", "false"}:
        return master == "true"
    place = identify(os.environ)
    if place.launcher != SINGLE:
        return place.rank == 0
    return True if os.environ.get("AZUREML_NODE_COUNT") == "1" else None
