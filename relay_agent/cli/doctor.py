"""All checks of `relay-agent doctor`: the installed debugpy, and whether the relay lets this machine listen."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import ssl
from collections.abc import Mapping

from relay_agent.debugpy_internals.feature import CHECKED_VERSIONS
from relay_agent.settings.environment import ACCESS_VARIABLES
from relay_agent.settings.ranks import explain
from relay_core.access_settings import AccessSettings
from relay_core.auth import Access
from relay_core.diagnosis.checks import TOKEN, Examination, Skipped
from relay_core.diagnosis.path_to_relay import ANSWER, examine_relay
from relay_core.errors import ConfigurationError, HybridConnectionNotFound, RelayDebugError, TooManyListeners
from relay_core.hyco.listener import ListenerState
from relay_core.net.hybrid.listener import HybridConnectionListener
from relay_core.net.session.secure_channel import NO_TUNNEL_KEY
from relay_core.net.tasks import first_completed
from relay_core.program.parser import installed_version
from relay_core.tunnel.handshake import MISDIRECTED, misdirected

_NUMBERS = re.compile(r"[0-9]+(?:\.[0-9]+)*")


def check_debugpy(found: str | None) -> str:
    """Return a version of debugpy as text, with the tested versions if it is not one of them.

    Args:
        found: The version, or None if debugpy is not installed.

    Raises:
        ConfigurationError: debugpy is missing or too old.
    """
    oldest, newest = CHECKED_VERSIONS
    hint = f"in the job's environment, run: pip install 'debugpy>={oldest}'"
    if found is None:
        raise ConfigurationError("debugpy is not installed", hint=hint)
    if _numbers(found) < _numbers(oldest):
        raise ConfigurationError(f"debugpy {found} is older than {oldest}, the oldest supported version", hint=hint)
    if _numbers(found) > _numbers(newest):
        return f"debugpy {found}; relay-debug was tested with {oldest} to {newest}"
    return f"debugpy {found}"


def _numbers(text: str) -> tuple[int, ...]:
    match = _NUMBERS.match(text)
    return tuple(int(part) for part in match.group().split(".")) if match else ()


# Check that the relay lets this machine listen on the hybrid connection.

RIGHT, HYBRID_CONNECTION, LISTENER, TUNNEL_KEY = "Listen right", "hybrid connection", "listener", "tunnel key"


class ListeningChecks:
    """Listens for a moment, as the agent does, and reports what the relay answers.

    A client that reaches this listener in that moment is referred to the other agents.

    Args:
        access: The hybrid connection and the credential.
        tls: Verifies the certificate of the relay.
    """

    def __init__(self, access: Access, tls: ssl.SSLContext) -> None:
        self._access = access
        self._tls = tls
        self._error: RelayDebugError | None = None

    async def run(self, examination: Examination) -> None:
        """Run the checks in order."""
        await examination.check(RIGHT, self._right, after=[ANSWER, TOKEN])
        await examination.check(HYBRID_CONNECTION, self._hybrid_connection, after=[RIGHT])
        await examination.check(LISTENER, self._listener, after=[HYBRID_CONNECTION])
        await examination.check(TUNNEL_KEY, self._tunnel_key)

    async def _right(self) -> str:
        await self._listen()
        if isinstance(self._error, HybridConnectionNotFound):
            raise Skipped("the relay did not check the token's rights")
        if self._error is not None and not isinstance(self._error, TooManyListeners):
            raise self._error
        return "the relay accepts the token for listening"

    async def _listen(self) -> None:
        """Listen until the relay has accepted or refused, and keep the error of a refusal."""
        decided: asyncio.Future[RelayDebugError | None] = asyncio.get_running_loop().create_future()

        def on_state(_state: ListenerState, error: RelayDebugError | None) -> None:
            if not decided.done():
                decided.set_result(error)

        access = self._access  # a refusal is reported at once, even if its role may be new and not yet in effect
        listener = HybridConnectionListener(
            access.endpoint, access.credential, tls=self._tls, on_state=on_state, role_grace=0.0
        )
        async with listener:
            await first_completed(decided, _refer(listener))
        self._error = decided.result() if decided.done() else None

    async def _hybrid_connection(self) -> str:
        if isinstance(self._error, HybridConnectionNotFound):
            raise self._error
        return f"'{self._access.endpoint.path}' exists"

    async def _listener(self) -> str:
        if self._error is not None:
            raise self._error
        return "the relay accepts another listener"

    async def _tunnel_key(self) -> str:
        if self._access.tunnel_key is None:
            raise Skipped(NO_TUNNEL_KEY)
        return "set; run 'relay-client doctor' to check that the client has the same key"


async def _refer(listener: HybridConnectionListener) -> None:
    """Refuse all clients until cancelled, as an agent does with clients of another agent."""
    reason = misdirected("relay-agent doctor is checking the relay", listener.listener_id)
    async for offer in listener:
        with contextlib.suppress(RelayDebugError):  # the client has disconnected
            await offer.reject(MISDIRECTED, reason)


# All checks of `relay-agent doctor`, in order.

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
    settings = with_job_settings(settings, os.environ)
    if found := await examine_relay(examination, settings, "agent", network_hint=network_hint(os.environ)):
        await ListeningChecks(*found).run(examination)

    async def debugpy() -> str:
        return check_debugpy(installed_version("debugpy"))

    async def rank() -> str:
        return "; ".join(explain(os.environ, port))

    await examination.check(DEBUGPY, debugpy)
    await examination.check(RANK, rank)
    return examination
