"""Facts about `relay-client diff` with tensors of which each rank holds a part: real ranks of torch, with gloo."""

from pathlib import Path

import pytest

from tests.support.jobs.sharded_job import check_differences
from tests.support.jobs.torch_job import needs_torch
from tests.support.network.relay import LocalRelay

pytestmark = [pytest.mark.e2e, needs_torch, pytest.mark.usefixtures("torch_import")]


async def test_sharded_model(relay: LocalRelay, tmp_path: Path) -> None:
    """Parts that differ by design are counted; what the chosen ranks should have in common is compared."""
    await check_differences(relay, tmp_path, "cpu")
