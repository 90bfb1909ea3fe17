"""All checks of `relay-client doctor`: `.vscode/launch.json`, and each stage from the relay to the process to debug."""

from __future__ import annotations

import ssl
import time
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from relay_client.agents.event_log import describe_agent
from relay_client.agents.tunnels import Tunnels
from relay_client.editor_setup.jsonc import parse
from relay_client.ui.text import format_ports, format_ranks
from relay_core import errors
from relay_core.access_settings import AccessSettings
from relay_core.agent_api.announcement import AgentInfo, TargetInfo
from relay_core.auth import Access
from relay_core.diagnosis.checks import TOKEN, Examination, Skipped
from relay_core.diagnosis.path_to_relay import ANSWER, examine_relay
from relay_core.json_values import items, mapping
from relay_core.net.session.secure_channel import NO_TUNNEL_KEY, TunnelKeyMissing, WrongTunnelKey
from relay_core.value_parsers import format_ranges

FILE = Path(".vscode", "launch.json")
HINT = "run: relay-client init vscode {}--write"


def check_launch_json(folder: Path, ports: Collection[int], option: str = "") -> str:
    """Return which ports the configurations in a folder attach to.

    Args:
        folder: The folder that VS Code opens.
        ports: Local ports that must have a configuration.
        option: The option of `relay-client init` that adds these ports.

    Raises:
        Skipped: the folder has no launch.json.
        ConfigurationError: the file is invalid, has a configuration of a deprecated type, or lacks a port.
    """
    try:
        text = (folder / FILE).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise Skipped(f"no {FILE} in {folder}") from None
    except (OSError, UnicodeError) as error:
        raise errors.ConfigurationError(f"cannot read {FILE}: {type(error).__name__}") from None
    attaching = [each for each in _configurations(text) if each.get("request") == "attach"]
    if old := [str(each.get("name")) for each in attaching if each.get("type") == "python"]:
        raise errors.ConfigurationError(
            f"{FILE}: '{old[0]}' has the deprecated type 'python'", hint=f"use 'debugpy', or {HINT.format('')}"
        )
    found = {port for each in attaching if (port := _port(each)) is not None}
    if (missing := set(ports) - found) or not found:
        what = format_ports(missing) if missing else "a port"
        hint = HINT.format(option if ports else "")
        raise errors.ConfigurationError(f"{FILE}: no configuration attaches to {what}", hint=hint)
    return f"{FILE} attaches to {format_ports(found)}"


def _configurations(text: str) -> list[dict[str, Any]]:
    root = parse(text, str(FILE), hint="correct the file")
    found = items(mapping(root.data if root is not None else None).get("configurations"))
    return [each for each in found if isinstance(each, dict)]


def _port(configuration: dict[str, Any]) -> int | None:
    """Return the port in `connect` or `listen`; debugpy accepts it as a number or as text."""
    for name in ("connect", "listen"):
        port = mapping(configuration.get(name)).get("port")
        if isinstance(port, (int, str)) and str(port).isdecimal():
            return int(port)
    return None


# Checks from the relay to the process to debug: right, hybrid connection, listener, tunnel key, agent and target.
#
# A single search for agents, the same as in every other command, provides all results. No connection is made to a
# target, because a process accepts one debugger at a time.

RIGHT, HYBRID_CONNECTION, LISTENER, TUNNEL_KEY = "Send right", "hybrid connection", "listener", "tunnel key"
AGENT, TARGET = "agent", "target"
SEARCH_LIMIT = 60.0
"""Maximum duration of the search for agents in seconds; each connection in the search has a timeout of 10 s."""


class AgentChecks:
    """Checks which processes can be reached.

    Args:
        access: The hybrid connection and the credential.
        tls: Verifies the certificate of the relay.
        ranks: The ranks that must be registered; None for any process.
    """

    def __init__(self, access: Access, tls: ssl.SSLContext, ranks: Collection[int] | None) -> None:
        self.targets: list[TargetInfo] = []
        self._access = access
        self._tls = tls
        self._ranks = ranks
        self._agents: list[AgentInfo] = []
        self._search_seconds = 0.0
        """From the first dial until all sessions with agents had begun."""
        self._error: errors.RelayDebugError | None = None
        """Why the search found no usable agent."""

    async def run(self, examination: Examination, now: float) -> None:
        """Run the checks in order; `now` is in Unix seconds."""
        self._now = now
        await examination.check(RIGHT, self._right, after=[ANSWER, TOKEN], limit=SEARCH_LIMIT)
        await examination.check(HYBRID_CONNECTION, self._hybrid_connection, after=[RIGHT])
        await examination.check(LISTENER, self._listener, after=[HYBRID_CONNECTION])
        await examination.check(TUNNEL_KEY, self._tunnel_key, after=[LISTENER])
        await examination.check(AGENT, self._agent, after=[TUNNEL_KEY])
        await examination.check(TARGET, self._target, after=[AGENT])

    async def _right(self) -> str:
        await self._search()
        if isinstance(self._error, (errors.Unauthorized, errors.RelayUnreachable)):
            raise self._error
        if isinstance(self._error, errors.HybridConnectionNotFound):
            raise Skipped("the relay did not check the token's rights")
        return "the relay accepts the token for sending"

    async def _search(self) -> None:
        access = self._access
        async with Tunnels(access.endpoint, access.credential, self._tls, tunnel_key=access.tunnel_key) as tunnels:
            started = time.monotonic()
            try:
                await tunnels.discover_all(waits=False)
            except errors.RelayDebugError as error:
                self._error = error
            self._search_seconds = time.monotonic() - started
            self._agents = list(tunnels.roster)
            if self._agents:  # the search may still end with an error: other listeners may be unusable or closing
                self._error = None
            # the roster also has the targets of an agent whose tunnel is being replaced at this moment
            self.targets = [claim.target for claim in tunnels.roster.targets(self._now)]

    async def _hybrid_connection(self) -> str:
        if isinstance(self._error, errors.HybridConnectionNotFound):
            raise self._error
        return f"'{self._access.endpoint.path}' exists"

    async def _listener(self) -> str:
        if isinstance(self._error, errors.NoListener):
            raise self._error
        # Senders learn from the relay whether there is a listener, but not how many listeners there are.
        if not self._agents:
            return "at least one"
        return f"{len(self._agents)} with a usable agent, found within {self._search_seconds:.3f} s"

    async def _tunnel_key(self) -> str:
        if isinstance(self._error, (TunnelKeyMissing, WrongTunnelKey)):
            raise self._error
        if self._error is not None:
            raise Skipped("no tunnel to an agent could be established")
        if self._access.tunnel_key is None:
            raise Skipped(NO_TUNNEL_KEY)
        return "the same on both sides, so the tunnel is encrypted end to end"

    async def _agent(self) -> str:
        if self._error is not None:
            raise self._error
        return "; ".join(describe_agent(agent, self._now) for agent in self._agents)

    async def _target(self) -> str:
        registered = {target.rank for target in self.targets}
        missing = [rank for rank in sorted(self._ranks or ()) if rank not in registered]
        if missing:
            raise errors.NoListener(
                f"{format_ranks(missing)} {'are' if len(missing) > 1 else 'is'} not registered",
                hint="run 'relay-client targets' to see what is registered; the job may not have started all ranks yet",
            )
        if not self.targets:
            raise errors.NoListener(
                "no process is registered",
                hint="make sure that the job was started in debug mode, and look for 'relay-agent:' lines in its log",
            )
        return ", ".join(f"{target.label} on port {target.port}" for target in self.targets[:8]) + (
            f" and {len(self.targets) - 8} more" if len(self.targets) > 8 else ""
        )


# All checks of `relay-client doctor`, in order.

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
    targets: Sequence[int] = ()
    if found := await examine_relay(examination, settings, "client"):
        agents = AgentChecks(*found, ranks)
        await agents.run(examination, time.time())
        targets = [target.port for target in agents.targets]

    async def editor() -> str:
        option = "--from-targets " if ports is None else f"--ports {format_ranges(ports)} "
        return check_launch_json(folder, targets if ports is None else ports, option)

    await examination.check(EDITOR, editor)
    return examination
