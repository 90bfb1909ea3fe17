"""Azure's identities and Key Vault, as local services, for the tests of credentials."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.support.azure.managed_identity import FakeManagedIdentity
from tests.support.azure.network import Azure, azure, clean_environment, web_server


@pytest.fixture(scope="session")
def azure_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where certificates are kept: made once."""
    return tmp_path_factory.mktemp("azure")


@pytest_asyncio.fixture
async def cloud(azure_directory: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Azure]:
    """Azure on this machine; this process and its children find it, and nothing else."""
    from azure.keyvault.secrets._shared import http_challenge_cache

    http_challenge_cache.clear()
    async with azure(azure_directory) as running:
        clean_environment(monkeypatch, **running.environment)
        yield running


@pytest_asyncio.fixture
async def identity(cloud: Azure, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[FakeManagedIdentity]:
    """The identity of an Azure ML job."""
    running = FakeManagedIdentity(cloud.issuer)
    async with web_server(running.app()) as running.port:
        for name, value in running.azure_ml().items():
            monkeypatch.setenv(name, value)
        yield running
