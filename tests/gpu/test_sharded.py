"""Facts about `relay-client diff` with sharded models on a GPU: real ranks of torch, with NCCL."""

from pathlib import Path

import pytest

from tests.support.jobs.sharded_job import check_differences
from tests.support.machine.gpu import needs_gpu
from tests.support.network.relay import LocalRelay

pytestmark = [pytest.mark.e2e, needs_gpu, pytest.mark.usefixtures("torch_import")]


async def test_sharded_model(relay: LocalRelay, tmp_path: Path) -> None:
    """Parts that differ by design are counted; what the chosen ranks should have in common is compared."""
    await check_differences(relay, tmp_path, "cuda:0")
