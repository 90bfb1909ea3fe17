"""All checks of `relay-agent doctor`, in order."""

from __future__ import annotations

import os
from collections.abc import Mapping

from relay_agent.doctor.debugpy_version import check_debugpy, installed_debugpy
from relay_agent.doctor.listening import ListeningChecks
from relay_agent.ranks.identity import explain
from relay_agent.settings.environment import ACCESS_VARIABLES
from relay_core.access_settings import AccessSettings
from relay_core.diagnosis.access import TOKEN, TOKEN_LIMIT, AccessChecks, check_token
from relay_core.diagnosis.checks import Examination
from relay_core.diagnosis.server import PORT, PRIVATE_ENDPOINT, ServerChecks, check_private_endpoint

__all__ = ["examine", "network_hint", "with_job_settings"]

DEBUGPY = "debugpy"
RANK = "rank"


def with_job_settings(settings: AccessSettings, environ: Mapping[str, str]) -> AccessSettings:
    """Return explicit settings, completed with those that `relay-agent run` passes to its job."""
    job = {field: environ.get(variable) or None for field, variable in ACCESS_VARIABLES.items()}
    return settings._replace(**{field: text for field, text in job.items() if getattr(settings, field) is None})


def network_hint(environ: Mapping[str, str]) -> str:
    """Return what may be missing in the network of an Azure ML job; "" elsewhere."""
    if not environ.get("AZUREML_RUN_ID"):
        return ""
    return (
        "in a workspace with a managed virtual network, add an outbound rule: az ml workspace outbound-rule set "
        "--rule relay-debug --type fqdn --destination '*.servicebus.windows.net' -w <workspace> -g <group>"
    )


async def examine(settings: AccessSettings, *, port: int) -> Examination:
    """Run all checks and return their results.

    Args:
        settings: Explicit settings; the others are read from environment variables.
        port: Logical port of rank 0.
    """
    examination = Examination()
    access = AccessChecks(with_job_settings(settings, os.environ), "agent")
    await access.run(examination)
    found, tls = access.access, access.tls
    if found is not None and tls is not None:
        server = ServerChecks(found.endpoint, tls, network_hint=network_hint(os.environ))
        await server.run(examination)
        await examination.check(
            PRIVATE_ENDPOINT, lambda: check_private_endpoint(server.addresses, listens=True), after=[PORT]
        )
        await examination.check(TOKEN, lambda: check_token(found, server.skew), limit=TOKEN_LIMIT)
        await ListeningChecks(found, tls).run(examination)

    async def debugpy() -> str:
        return check_debugpy(installed_debugpy())

    async def rank() -> str:
        return "; ".join(explain(os.environ, port))

    await examination.check(DEBUGPY, debugpy)
    await examination.check(RANK, rank)
    return examination
