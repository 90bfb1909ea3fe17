"""Reports to the processes of a node whether their agent has reached the relay.

    trying --> listening                         a debugger can attach
       |           ^
       v           |
    unreachable ---+                             waiting processes continue, the agent keeps trying

Each state can also end in `failed`, of which the processes are informed: the agent has given up. Once the agent, or one
that it replaces, has listened, an outage does not change the state, because the outage is likely to end while a process
is waiting. A process that registers during the outage is informed at once, and goes from trying to unreachable on its
own. What would otherwise count as an error in the settings, such as an untrusted certificate, then counts as an outage
too. A refused identity does not change the state either: the relay was reached, and a new role takes a few minutes to
take effect (`relay_core.hyco.backoff`).
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

from relay_agent.node.in_agent.processes import ProcessTable
from relay_agent.node.in_agent.registered_process import RegisteredProcess
from relay_agent.node.protocol import Message
from relay_core.errors import ConfigurationError, RelayDebugError, Unauthorized, UsageError
from relay_core.hyco.backoff import Backoff

REACH_TIMEOUT = 30.0
"""Seconds for which processes wait for an agent that is not listening. A network that is just starting (a pod's
sidecar, a VPN, DHCP) takes less time; a missing route or a proxy that refuses connections does not change while a job
waits."""

T = TypeVar("T")

logger = logging.getLogger(__name__)


class Reach:
    """Informs the processes of a node about the agent's listener.

    Args:
        processes: All processes of the node, including those that register later.
        timeout: Seconds until the relay counts as unreachable.
        has_listened: Whether a killed agent that this one replaces has listened.
    """

    def __init__(self, processes: ProcessTable, *, timeout: float = REACH_TIMEOUT, has_listened: bool = False) -> None:
        self._processes = processes
        self._timeout = timeout
        self._has_listened = has_listened
        self._last_failure: RelayDebugError | None = None
        self._state: Message | None = None
        """What processes are sent when they register; None while the agent is trying to reach the relay."""
        self._waiting: set[RegisteredProcess] = set()
        """Processes that have registered while the agent was trying."""
        for process in processes.targets():
            self._registered(process)
        processes.on_register = self._registered

    def listening(self) -> None:
        """Report that the relay has accepted the agent."""
        self._has_listened = True
        self._broadcast({"listening": True})

    def retrying(self, error: RelayDebugError) -> None:
        """Store the reason for the failure of an attempt that will be repeated."""
        self._last_failure = error
        if self._has_listened:
            self._state = None

    def failed(self, error: RelayDebugError) -> None:
        """Report that the agent has stopped retrying."""
        self._broadcast({"failed": error.sentence, "hint": error.hint})

    async def retry(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Repeat a network operation until it succeeds, and return its result.

        Raises:
            RelayDebugError: a permanent error.
        """
        backoff = Backoff(random.random)
        last_logged = ""
        while True:
            try:
                return await attempt()
            except RelayDebugError as error:
                if not self._may_pass(error):
                    raise
                self.retrying(error)
                if str(error) != last_logged:
                    last_logged = str(error)
                    logger.warning("not listening, retrying: %s", last_logged)
            await asyncio.sleep(backoff.next_delay(lived=0.0))

    def _may_pass(self, error: RelayDebugError) -> bool:
        """Return whether another attempt may succeed."""
        return error.retryable or (
            self._has_listened and not isinstance(error, (ConfigurationError, Unauthorized, UsageError))
        )

    def _broadcast(self, state: Message) -> None:
        self._state = state
        self._waiting.clear()
        for process in self._processes.targets():
            process.send(state)

    def _registered(self, process: RegisteredProcess) -> None:
        if self._state is not None:
            process.send(self._state)
            return
        if self._has_listened and self._last_failure is not None:
            process.send({"notice": f"the relay cannot be reached, retrying: {self._last_failure.sentence}"})
        self._waiting.add(process)
        self._start_timer(process)

    def _start_timer(self, process: RegisteredProcess) -> None:
        asyncio.get_running_loop().call_later(self._timeout, self._expired, process)

    def _expired(self, process: RegisteredProcess) -> None:
        if process not in self._waiting:
            return
        if isinstance(self._last_failure, Unauthorized) and not process.has_gone:
            self._start_timer(process)
            return
        self._waiting.discard(process)
        if process.has_gone:
            return
        failure = self._last_failure or RelayDebugError("the relay has not answered yet")
        unreachable: Message = {"unreachable": failure.sentence, "hint": failure.hint}
        if self._has_listened:
            process.send(unreachable)  # a process that was waiting before the outage ignores it
        else:
            self._broadcast(unreachable)
