"""This process's part in a debug run: registered once, then debugged on demand, waiting, held or let go.

    begin(settings) --> on demand: runs at full speed, debugpy is not imported
          wait()    --> waiting: for a debugger, a bounded time
          hold()    --> held: at a breakpoint() or a crash, likewise

Whatever goes wrong here raises a RelayDebugError; `relay_agent.api` turns that into a line.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from typing import TYPE_CHECKING, ClassVar

from relay_agent.debuggee.debugger import debugger
from relay_agent.ranks.identity import ProcessIdentity, identify
from relay_agent.settings.model import DebugSettings
from relay_agent.stderr import say
from relay_core.access_settings import KEY_VAULT_VARIABLE, AccessSettings
from relay_core.errors import ConfigurationError, RelayDebugError

if TYPE_CHECKING:
    from relay_agent.node.client import NodeClient
    from relay_agent.node.protocol import AnswerFields, Ask, TargetRecord

__all__ = ["DebuggedProcess", "begin", "current"]


def current() -> DebuggedProcess | None:
    """Return this process's part, if it has one."""
    found = DebuggedProcess.of_this_process
    return found if found is not None and found.node_client.is_mine else None


def begin(settings: DebugSettings, *, rank: int | None = None) -> DebuggedProcess:
    """Register this process with its node's agent, once; it goes on at full speed.

    Args:
        settings: Of this run.
        rank: This process's rank, where the environment does not tell it.

    Raises:
        RelayDebugError: it cannot be debugged, and why.
    """
    found = current()
    if found is None or found.node_client.hopeless.is_set():
        if not settings.access.hc:
            raise ConfigurationError("the hybrid connection has no name", hint="add --debug-relay-connection-name")
        _refuse_secret_without_vault(settings.access)
        if debugger.is_armed() and debugger.find_port() is None:
            raise ConfigurationError(
                "debugpy is in use already, on a port that cannot be told", hint="leave debugpy.listen() to relay_agent"
            )
        if settings.timeouts is not None:
            from relay_agent.collective_timeouts import raise_timeouts  # noqa: PLC0415 - if asked for

            raise_timeouts(settings.timeouts)
        identity = identify(os.environ)
        found = DebuggedProcess(settings, identity if rank is None else identity._replace(rank=rank))
        DebuggedProcess.of_this_process = found
        if settings.on_crash:
            from relay_agent.debuggee.post_mortem import install  # noqa: PLC0415 - if asked for

            install(found.hold_crash, found.end_hold)
    return found


class DebuggedProcess:
    """A process that clients can reach.

    Args:
        settings: Of this run.
        identity: Which of its processes this is.
    """

    of_this_process: ClassVar[DebuggedProcess | None] = None
    """Set by `begin`; a forked child inherits it, but not the registration."""

    def __init__(self, settings: DebugSettings, identity: ProcessIdentity) -> None:
        from relay_agent.node.client import NodeClient  # noqa: PLC0415 - in debug runs only

        self.settings = settings
        self.identity = identity
        self._failure_told = threading.Lock()
        """Taken by who tells it, and never given back."""
        self.port = settings.port + identity.rank
        self.node_client: NodeClient = NodeClient(
            settings.access.given(),
            self._record(),
            forwards=list(settings.forwards),
            answers={
                "arm": self._arm,
                "release": self._release,
                "stacks": self._stacks,
                "connect": self._connect,
            },
            on_failure=self._tell_failure,
        )

    def __repr__(self) -> str:
        return f"<DebuggedProcess rank {self.identity.rank} port {self.port} {self.node_client!r}>"

    @property
    def where(self) -> str:
        """The port to attach to, for messages."""
        return f"port {self.port} ('{self.settings.access.hc}')"

    def say(self, text: str) -> None:
        """Print a line to the job's stderr; with several ranks it says which one speaks."""
        several = self.identity.world_size not in {None, 1} or self.identity.rank
        say(f"rank {self.identity.rank}: {text}" if several else text)

    def wait(self, seconds: float, *, detail: str = "") -> bool:
        """Wait until a debugger is attached, and return whether one is: stop after `seconds`, or when none can come."""
        if debugger.is_attached():
            return True
        self.node_client.set_state("waiting", detail, until=time.time() + seconds)
        go_on = self.node_client.prepare_state("running")
        try:
            return debugger.wait_for_attach(seconds, self.node_client.hopeless)
        finally:
            go_on()

    def attend(self, seconds: float) -> bool:
        """Wait as `wait` does, and say so on stderr."""
        started = time.monotonic()
        if debugger.is_attached():
            self.say("a debugger is attached already")
            return True
        if seconds > 0:
            self.say(f"waiting up to {seconds:g} s for a debugger on {self.where}")
        else:
            self.say(f"a debugger can attach on {self.where}")
        if seconds > 0 and self.wait(seconds):
            self.say(f"a debugger is attached, after {time.monotonic() - started:.1f} s")
            return True
        if self.node_client.hopeless.is_set():
            self._tell_failure(self.node_client.failure)
        elif seconds > 0:
            self.say(f"no debugger attached within {seconds:g} s; continuing, and one can still attach on {self.where}")
        return False

    def hold_crash(self, what: str) -> bool:
        """Wait for a debugger after an uncaught exception, and return whether one is attached.

        The process is announced as crashed until `end_hold`, so while somebody is looking at the crash, too.
        """
        hold = self.settings.hold
        if debugger.is_attached():
            self.say(f"crashed: {what}; a debugger is attached")
            self.node_client.set_state("crashed", what)
            return True
        self.say(f"crashed: {what}; held up to {hold:g} s for a debugger on {self.where}")
        self.node_client.set_state("crashed", what, until=time.time() + hold)
        if debugger.wait_for_attach(hold, self.node_client.hopeless):
            return True
        self.say("no debugger attached in time; exiting")
        return False

    def end_hold(self) -> None:
        """Announce that the process goes on after a crash: it ends, or the exception was in one of its threads."""
        self.node_client.set_state("running")

    def _tell_failure(self, failure: RelayDebugError | None) -> None:
        """Say once that no debugger can come, whether somebody waits for one or not."""
        if self._failure_told.acquire(blocking=False):
            self.say(f"continuing without a debugger: {failure or 'its agent has left'}")

    def _record(self) -> TargetRecord:
        identity = self.identity
        return {
            "port": self.port,
            "rank": identity.rank,
            "world": identity.world_size,
            "node_rank": identity.node_rank,
            "run": identity.run_id,
            "pid": os.getpid(),
            "script": _script(),
            "state": "running",
            "since": time.time(),
        }

    def _arm(self, _ask: Ask) -> AnswerFields:
        return {"port": debugger.arm(follow_children=self.settings.follow_children)}

    def _release(self, _ask: Ask) -> AnswerFields:
        debugger.release()
        return {}

    def _stacks(self, ask: Ask) -> AnswerFields:
        from relay_agent.stacks.in_process import collect  # noqa: PLC0415 - when asked for only, here and below

        return {"threads": [thread.encode() for thread in collect(locals=ask.get("locals", False))]}

    def _connect(self, ask: Ask) -> AnswerFields:
        debugger.connect(ask["port"], follow_children=self.settings.follow_children)
        return {}


def _script() -> str:
    """Return what runs, as people call it."""
    arguments = sys.orig_argv[1:]
    if "-m" in arguments[:-1]:
        return arguments[arguments.index("-m") + 1]
    script = next((text for text in arguments if text.endswith(".py")), "")
    return os.path.basename(script or (sys.argv[0] if sys.argv else ""))  # noqa: PTH119 - pathlib costs 10 ms here


def _refuse_secret_without_vault(access: AccessSettings) -> None:
    """Refuse, before anything is started, a secret's name without a Key Vault to look in."""
    if access.lacks_key_vault(os.environ):
        raise ConfigurationError(
            f"secret '{access.connection_string_secret}' is named, but no Key Vault",
            hint=f"set {KEY_VAULT_VARIABLE} in the job's environment",
        )
