"""What a job calls: it brings an agent and a debugger together, waits, and never lets the job suffer for it.

Everything that goes wrong here is told on stderr and answered with False. The order matters: the agent is started
before debugpy, which patches how processes are started, and its interpreter gets ready while debugpy does.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from relay_agent import debuggee
from relay_agent.step_arguments import DEFAULT_PORT, DEFAULT_WAIT, parse_step_arguments
from relay_core.errors import ConfigurationError, RelayDebugError

if TYPE_CHECKING:
    from relay_agent.agent_process import AgentProcess

__all__ = ["start_remote_debugging", "start_remote_debugging_from_args"]

_VAULT_VARIABLE = "KEY_VAULT_URL"
_OTHER_SOURCES = (
    "RELAY_CONNECTION_STRING",
    "RELAY_CONNECTION_STRING_FILE",
    "AZRELAY_CONNECTION_STRING",
    "RELAY_NAMESPACE",
)
"""What an agent can use instead of a secret; repeated from `relay_core.auth`, whose import a job need not pay for."""

_agent: AgentProcess | None = None
"""The agent of this process; a forked child inherits the name, not the agent."""


def start_remote_debugging_from_args(argv: Sequence[str] | None = None) -> bool:
    """Start debugging if the command line asks for it, and return whether a debugger is attached.

    Args:
        argv: The job's arguments, by default `sys.argv[1:]`. They are not changed, and arguments that are not about
            debugging are passed over: see `relay_agent.step_arguments`.
    """
    try:
        step = parse_step_arguments(argv)
    except RelayDebugError as error:
        return _go_on(error)
    return step.is_debug and start_remote_debugging(
        step.connection_name,
        step.port,
        debug_relay_connection_string_secret=step.connection_string_secret,
        wait=step.wait,
    )


def start_remote_debugging(
    debug_relay_connection_name: str | None,
    debug_port: int = DEFAULT_PORT,
    *,
    wait: float = DEFAULT_WAIT,
    connection_string: str | None = None,
    connection_string_file: str | None = None,
    key_vault: str | None = None,
    namespace: str | None = None,
    identity: str | None = None,
    tunnel_key_file: str | None = None,
    tunnel_key_secret: str | None = None,
    ca_file: str | None = None,
    debug_relay_connection_string_secret: str | None = None,
    debugpy_connect_timeout: float | None = None,
) -> bool:
    """Make this process debuggable from afar, and return whether a debugger is attached.

    What is not given here the agent looks for in its environment, which is the job's: RELAY_CONNECTION_STRING,
    RELAY_CONNECTION_STRING_FILE, KEY_VAULT_URL, RELAY_NAMESPACE and others, see `relay_core.auth.sources`.

    Args:
        debug_relay_connection_name: Hybrid connection.
        debug_port: The port that your launch.json names. It is a name for this process, not a port that is opened.
        wait: Seconds to wait for the debugger; 0 goes on at once, and a debugger can attach at any time.
        connection_string: Connection string with the Listen right.
        connection_string_file: File that holds it, readable by its owner only.
        key_vault: Key Vault that named secrets are in.
        namespace: Relay namespace, for tokens of Entra ID instead of a connection string.
        identity: The only Entra identity to ask, such as "managed".
        tunnel_key_file: File that holds the tunnel key, readable by its owner only.
        tunnel_key_secret: Name of a Key Vault secret with the tunnel key.
        ca_file: Certificate authority of a relay of your own, PEM.
        debug_relay_connection_string_secret: Name of a Key Vault secret with the connection string; the agent
            reads it, and this process never sees it.
        debugpy_connect_timeout: Older name of `wait`.
    """
    seconds = wait if debugpy_connect_timeout is None else debugpy_connect_timeout
    where = f"port {debug_port} of '{debug_relay_connection_name}'"
    try:
        if not debug_relay_connection_name:
            raise ConfigurationError("the hybrid connection has no name", hint="add --debug-relay-connection-name")
        if debuggee.is_attached():
            _say("a debugger is attached already")
            return True
        if not (connection_string or connection_string_file or key_vault or namespace):
            _refuse_secret_without_vault(debug_relay_connection_string_secret)
        agent = _running_agent() or _start_agent(
            hc=debug_relay_connection_name,
            logical_port=debug_port,
            connection_string=connection_string,
            connection_string_file=connection_string_file,
            connection_string_secret=debug_relay_connection_string_secret,
            key_vault=key_vault,
            namespace=namespace,
            identity=identity,
            tunnel_key_file=tunnel_key_file,
            tunnel_key_secret=tunnel_key_secret,
            ca_file=ca_file,
        )
        return _wait(agent, seconds, where)
    except RelayDebugError as error:
        return _go_on(error)
    except Exception as error:  # noqa: BLE001 - whatever it is, the job is worth more than its debugger
        return _go_on(RelayDebugError(f"{type(error).__name__}: {error}"))


def _refuse_secret_without_vault(secret: str | None) -> None:
    """Say so before anything is started."""
    if secret and not any(os.environ.get(variable) for variable in (_VAULT_VARIABLE, *_OTHER_SOURCES)):
        raise ConfigurationError(
            f"secret '{secret}' is named, but no Key Vault", hint=f"set {_VAULT_VARIABLE} in the job's environment"
        )


def _running_agent() -> AgentProcess | None:
    return _agent if _agent is not None and _agent.is_mine and not _agent.ended.is_set() else None


def _start_agent(*, hc: str, logical_port: int, **access: str | None) -> AgentProcess:
    """Start the agent and the debugger, or find the debugger that runs, and introduce one to the other."""
    global _agent  # noqa: PLW0603 - a process has one debugger, hence one agent
    from relay_agent.agent_order import AgentOrder  # noqa: PLC0415 - in debug runs only
    from relay_agent.agent_process import AgentProcess  # noqa: PLC0415 - in debug runs only

    target_port = debuggee.find_foreign_port() if debuggee.is_armed() else None
    if debuggee.is_armed() and target_port is None:
        raise ConfigurationError(
            "debugpy is in use already, on a port that cannot be told", hint="leave debugpy.listen() to relay_agent"
        )
    _agent = AgentProcess()
    try:
        order = AgentOrder(
            hc=hc,
            logical_port=logical_port,
            target_port=target_port or debuggee.arm(),
            pid=os.getpid(),
            **access,
        )
    except BaseException:
        _agent.dismiss()
        raise
    _agent.attend(order)
    return _agent


def _wait(agent: AgentProcess, seconds: float, where: str) -> bool:
    """Wait for a debugger until time is up or the agent is gone; an agent says by itself why it gives up."""
    started = time.monotonic()
    _say(f"waits up to {seconds:g} s for a debugger on {where}" if seconds > 0 else f"a debugger can attach on {where}")
    if debuggee.wait_for_attach(seconds, agent.ended):
        _say(f"a debugger is attached, after {time.monotonic() - started:.1f} s")
        return True
    if agent.ended.is_set():
        debuggee.disarm()
        reason = agent.failure.sentence if agent.failure else "its agent has left"
        _say(f"the job goes on without a debugger: {reason}")
        return False
    if seconds > 0:
        _say(f"no debugger came within {seconds:g} s; the job goes on, and one can still attach on {where}")
    return False


def _go_on(error: RelayDebugError) -> bool:
    _say(f"error: {error}")
    _say("the job goes on without a debugger")
    return False


def _say(text: str) -> None:
    if sys.stderr is not None:
        print(f"relay-agent: {text}", file=sys.stderr, flush=True)  # noqa: T201 - the job's only voice before logging
