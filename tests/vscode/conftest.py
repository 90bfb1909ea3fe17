"""A real VS Code for the tests of this folder, and what they have in common."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.support.editors.vscode.editor import Editor, running_editor
from tests.support.editors.vscode.installation import ROOT, Installation, NotInstalled, find_installation
from tests.support.network.relay import LocalRelay, local_relay

ARTEFACTS = ROOT / "build" / "vscode"


@pytest.fixture(scope="package")
def installation() -> Installation:
    """Where VS Code is; without it the test is skipped."""
    try:
        return find_installation()
    except NotInstalled as missing:
        pytest.skip(str(missing))


@pytest_asyncio.fixture(scope="package", loop_scope="package")
async def editor(installation: Installation, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Editor]:
    """VS Code, started once for this folder."""
    async with running_editor(installation, tmp_path_factory.mktemp("vscode"), ARTEFACTS) as running:
        yield running


@pytest_asyncio.fixture(loop_scope="package")
async def relay(tls_directory: Path) -> AsyncIterator[LocalRelay]:
    """A running relay with one hybrid connection, in the event loop of this folder."""
    async with local_relay(tls_directory) as running:
        yield running
