"""What the tests with the real `az` share: a small Azure over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.azure.az_shim.kit import FakeAzure
from tests.support.azure.cloud.cli import RealAz
from tests.support.azure.cloud.kit import AzureOverHttp
from tests.support.azure.cloud.state import State

NAMES = ("-g", "debug-rg", "-n", "contoso-debug", "--hc", "alice", "--key-vault", "contoso-kv")


@pytest.fixture
def names() -> tuple[str, ...]:
    """The options that every script takes, for alice."""
    return NAMES


@pytest.fixture
def azure(tmp_path: Path, tls_directory: Path, az: RealAz) -> Iterator[AzureOverHttp]:
    """Azure with `az` signed in to it; no request of a test may be one that nobody plays."""
    with AzureOverHttp(tmp_path, tls_directory, az) as azure:
        yield azure
    assert [] == azure.unknown


@pytest.fixture(scope="session")
def state_after_create(tmp_path_factory: pytest.TempPathFactory) -> State:
    """What create_relay.sh for alice makes, made by the quick stand-in, which test_az_stand_in.py compares."""
    with FakeAzure(tmp_path_factory.mktemp("stand-in")) as stand_in:
        assert 0 == stand_in.run("create_relay.sh", *NAMES).code
        return stand_in.load()


@pytest.fixture
def deployed(azure: AzureOverHttp, state_after_create: State) -> AzureOverHttp:
    """Azure after create_relay.sh for alice."""
    azure.save(state_after_create)
    return azure
