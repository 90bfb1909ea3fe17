"""What the samples' tests share, however many workers run them."""

import os
from collections.abc import Iterator

import pytest

from tests.samples.kit import shared_by_workers


@pytest.fixture(scope="session", autouse=True)
def _made_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Let the workers find what one of them has made, such as the wheel."""
    own = tmp_path_factory.getbasetemp()
    with shared_by_workers(own.parent if "PYTEST_XDIST_WORKER" in os.environ else own):
        yield
