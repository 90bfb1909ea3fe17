"""Step 3, distributed PyTorch: learn from the features which points lie inside the circle.

Azure ML starts this file once per rank, on every node, and sets RANK and related environment variables; torchrun
does the same.
"""

import argparse
import csv
import importlib.util
import json
import os
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import relay_agent


def main() -> None:
    """Train on all ranks, and save the model on rank 0."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--features", type=Path, required=True, help="folder with the features")
    parser.add_argument("--model", type=Path, required=True, help="folder for the model")
    parser.add_argument("--curves", type=Path, help="folder for TensorBoard's event files, if it is installed")
    parser.add_argument("--epochs", type=int, default=30)
    relay_agent.add_debug_arguments(parser)
    options = parser.parse_args()

    # Rank 0 waits for its debugger. The other ranks wait for rank 0 in their next collective operation, which must not
    # time out. A debugger can attach to them at any time: the logical port of rank n is the step's port plus n.
    relay_agent.start_remote_debugging_from_args()
    patience = timedelta(days=1) if options.is_debug else timedelta(minutes=10)

    on_gpu = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if on_gpu else torch.device("cpu")
    dist.init_process_group("nccl" if on_gpu else "gloo", timeout=patience)
    try:
        train(options, device)
    finally:
        dist.destroy_process_group()


def train(options: argparse.Namespace, device: torch.device) -> None:
    """Run gradient descent on this rank's share of the files, with gradients averaged over all ranks."""
    torch.manual_seed(7)
    inputs, labels = read_share(options.features, device)
    model = DistributedDataParallel(torch.nn.Linear(3, 1).to(device))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.3)
    curves = open_curves(options.curves) if dist.get_rank() == 0 else None
    for epoch in range(1, options.epochs + 1):
        loss = train_step(model, optimizer, inputs, labels, epoch)
        if curves:
            curves.add_scalar("loss", loss, epoch)
            curves.flush()
    if curves:
        curves.close()
    print(f"train: rank {dist.get_rank()} of {dist.get_world_size()}: loss {loss:.4f}", flush=True)
    if dist.get_rank() == 0:
        options.model.mkdir(parents=True, exist_ok=True)
        weights = model.module.weight.flatten().tolist()
        (options.model / "model.json").write_text(json.dumps({"weights": weights, "bias": model.module.bias.item()}))


def open_curves(folder: Path | None):  # noqa: ANN201 - TensorBoard may be missing
    """Return a writer for event files, or None if no folder is given or if TensorBoard is not installed."""
    if folder is None or importlib.util.find_spec("tensorboard") is None:
        return None
    from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415 - as above

    return SummaryWriter(folder)


def train_step(
    model: DistributedDataParallel,
    optimizer: torch.optim.Optimizer,
    inputs: torch.Tensor,
    labels: torch.Tensor,
    epoch: int,  # noqa: ARG001 - for conditional breakpoints, such as epoch == 3
) -> float:
    """Take one step, and return this rank's loss before the step."""
    optimizer.zero_grad()
    loss = torch.nn.functional.binary_cross_entropy_with_logits(model(inputs).flatten(), labels)
    loss.backward()  # collective operation
    optimizer.step()
    return loss.item()


def read_share(folder: Path, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the features and labels in this rank's share of the files: every n-th file, for n ranks."""
    rows = []
    for path in sorted(folder.glob("*.csv"))[dist.get_rank() :: dist.get_world_size()]:
        with path.open(newline="") as file:
            rows += [[float(value) for value in row] for row in csv.reader(file)]
    table = torch.tensor(rows, device=device)
    return table[:, :3], table[:, 3]


if __name__ == "__main__":
    main()
