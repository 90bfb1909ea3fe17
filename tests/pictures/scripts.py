"""What the jobs run: the sample, also with a mistake in it."""

from __future__ import annotations

import contextlib
import re
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import TypeVar

from tests.pictures.stage import Stage, stopped
from tests.support.jobs.many_ranks import line_of
from tests.support.jobs.processes import ROOT

__all__ = ["HANGING", "TRAINING", "one_stopped_one_crashed"]

T = TypeVar("T")

STEP = 100
"""At which rank 2 reads a file."""
SAMPLE = (ROOT / "samples" / "distributed" / "train.py").read_text()
TRAINING = re.sub(" +# noqa.*", "", SAMPLE).replace("gradient / dist.get_world_size()", "1e-5 * gradient")
"""The sample in slow steps, so that the gradient is not zero when somebody looks at it."""
LOOP = "    for step in range(1, steps + 1):\n"
READ = """\
def read_heights(path: str) -> torch.Tensor:
    \"\"\"Return the heights in a file.\"\"\"
    with open(path) as file:
        fields = dict(line.split() for line in file)
    return torch.tensor(float(fields["height"]))


def train("""


def _with_reading(path: str) -> str:
    calls = f'        if rank == 2 and step == {STEP}:\n            heights = read_heights("{path}")\n'
    script = TRAINING.replace("def train(", READ, 1).replace(LOOP, LOOP + calls, 1)
    return script.replace("    finally:", "    except KeyboardInterrupt:")  # the other ranks keep waiting for rank 2


CRASHING = _with_reading("invalid")
"""Rank 2 reads a file without a height."""
HANGING = _with_reading("fifo")
"""Rank 2 waits for a file: it opens a FIFO that nobody writes."""


@contextlib.asynccontextmanager
async def one_stopped_one_crashed(stage: Stage, client: AbstractAsyncContextManager[T]) -> AsyncIterator[T]:
    """Run a job and a client; rank 1 is stopped by an editor, and rank 2 is held at an exception."""
    line = line_of(CRASHING, "error = points")
    options = ("--debug-ranks", "1", "--debug-on-crash")
    async with (
        stage.job(CRASHING, *options, nodes=2) as folder,
        client as running,
        stopped(folder, 1, line, f"step == {STEP}"),
    ):
        yield running
