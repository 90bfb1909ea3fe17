"""All checks of `relay-client doctor`, in order."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from pathlib import Path

from relay_client.doctor.agents import AgentChecks
from relay_client.doctor.editor_files import check_launch_json
from relay_core.access_settings import AccessSettings
from relay_core.diagnosis.access import TOKEN, TOKEN_LIMIT, AccessChecks, check_token
from relay_core.diagnosis.checks import Examination
from relay_core.diagnosis.server import PORT, PRIVATE_ENDPOINT, ServerChecks, check_private_endpoint

__all__ = ["examine"]

EDITOR = "editor"


async def examine(
    settings: AccessSettings, *, ranks: Collection[int] | None, ports: Sequence[int] | None, folder: Path
) -> Examination:
    """Run all checks and return their results.

    Args:
        settings: Explicit settings; all others come from environment variables.
        ranks: Ranks that must be registered; None for any process.
        ports: Local ports for which the editor must be configured; None for those of the registered processes.
        folder: The folder that the editor opens.
    """
    examination = Examination()
    access = AccessChecks(settings, "client")
    await access.run(examination)
    targets: Sequence[int] = ()
    found, tls = access.access, access.tls
    if found is not None and tls is not None:
        server = ServerChecks(found.endpoint, tls)
        await server.run(examination)
        await examination.check(
            PRIVATE_ENDPOINT, lambda: check_private_endpoint(server.addresses, listens=False), after=[PORT]
        )
        await examination.check(TOKEN, lambda: check_token(found, server.skew), limit=TOKEN_LIMIT)
        agents = AgentChecks(found, tls, ranks)
        await agents.run(examination, time.time())
        targets = [target.port for target in agents.targets]

    async def editor() -> str:
        return check_launch_json(folder, targets if ports is None else ports)

    await examination.check(EDITOR, editor)
    return examination
