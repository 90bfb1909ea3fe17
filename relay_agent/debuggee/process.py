"""The process being debugged: registered with its node's agent, and then on demand, waiting, or held at a crash.

    begin(settings) --> on demand: runs at full speed, debugpy is not imported
    wait()          --> waiting: blocked until a debugger attaches, for a bounded time
    hold_crash()    --> crashed: blocked in the same way, after an uncaught exception

Every failure here is a RelayDebugError; `relay_agent.api` writes it to stderr as one line.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import sys
from types import FrameType
from typing import TYPE_CHECKING, ClassVar

from relay_agent.debuggee import pydevd_patches, sigtrap
from relay_agent.debuggee.answers import ANSWERS
from relay_agent.debuggee.debugger import debugger, debugpy_missing
from relay_agent.job.collective_timeouts import prepare_for_holds, raise_timeouts
from relay_agent.job.paths import script_name, start_directory
from relay_agent.job.stderr import report_failure, write_line
from relay_agent.node.in_job.attach_state import State
from relay_agent.settings.environment import LOCAL_RUN, NO_RELAY, is_local, register_environment, run_name
from relay_agent.settings.model import DebugSettings
from relay_agent.settings.ranks import ProcessIdentity, identify, logical_port
from relay_core.errors import RelayDebugError

if TYPE_CHECKING:
    from relay_agent.node.in_job.client import NodeClient
    from relay_agent.node.protocol import TargetRecord
from relay_agent.job.gevent_originals import import_gevent, threading, time

NOBODY_ATTACHED = "no debugger attached in time; exiting"
AGENT_TIME = 3.0
"""Maximum time in seconds that a process waits to find out whether its agent has refused it or, if it crashes at its
start, whether the agent can listen."""


def current() -> DebuggedProcess | None:
    """Return the DebuggedProcess of this process, or None if `begin` was not called or was called only in a parent."""
    found = DebuggedProcess.of_this_process
    return found if found is not None and found.node_client.is_mine else None


def begin(settings: DebugSettings, *, rank: int | None = None) -> DebuggedProcess:
    """Register this process with its node's agent, once; it continues at full speed.

    Args:
        settings: The debug settings of this run.
        rank: This process's rank; by default, the one in the launcher's environment variables.

    Raises:
        RelayDebugError: the process cannot be debugged.
    """
    found = current()
    if found is None or found.attaching.hopeless.is_set():
        if not is_local(settings, os.environ):
            settings.access.require_complete(os.environ)
            if debugger.is_armed():
                debugger.known_port()  # an error if the job has started debugpy on an unknown one
        prepare_for_holds()
        if settings.timeouts:
            raise_timeouts(settings.timeouts)
        import_gevent()
        identity = identify(os.environ)
        found = DebuggedProcess(settings, identity if rank is None else identity._replace(rank=rank))
        DebuggedProcess.of_this_process = found
        os.environ.update(register_environment(found.identity, os.getpid(), settings.port))
        if not settings.values:  # debugpy shows them its own way, in this process and in its children
            debugger.shows_values = False
            os.environ[pydevd_patches.VALUES_VARIABLE] = "off"
        if settings.on_crash:
            from relay_agent.debuggee.post_mortem import install  # noqa: PLC0415 - with --debug-on-crash only

            # After the hold, the process is running again: only a thread has crashed, or the exception may be caught.
            end_hold = functools.partial(found.node_client.set_state, "running")
            install(found.hold_crash, end_hold, found.is_agent_lost)
        sigtrap.install(_hold_at_signal)
        if found.identity.is_master:
            found.log_limits()
    return found


class DebuggedProcess:
    """This process as a target that clients can attach to.

    Args:
        settings: The debug settings of this run.
        identity: Its rank in the distributed job.
    """

    of_this_process: ClassVar[DebuggedProcess | None] = None
    """Set by `begin`; a forked child inherits it, but not the registration."""

    def __init__(self, settings: DebugSettings, identity: ProcessIdentity) -> None:
        from relay_agent.node.in_job.client import NodeClient  # noqa: PLC0415 - in debug runs only

        self.settings = settings
        self.identity = identity
        self._failure_logged = threading.Lock()
        """Acquired by the first thread that logs the failure, and never released."""
        self._unreachable_logged = False
        self.agent_of_debugger = 0
        """Number of the agent through which the last debugger attached; see `NodeClient.connections`."""
        self._exits_without = False
        """True while the process waits for a debugger and will exit if none attaches."""
        self._is_held = False
        """True while the process waits for a debugger after a crash; the process itself then logs why none can
        attach."""
        self.is_local = is_local(settings, os.environ)
        """True if no debugger can attach, because the run has no relay."""
        self.port = logical_port(settings.port, identity.rank)
        self.where = f"port {self.port} ('{settings.access.hc}')" if settings.access.hc else f"port {self.port}"
        """The port to attach to, for messages."""
        access = settings.access.given()
        if self.is_local:
            access = {LOCAL_RUN: run_name(identity, os.environ, pid=os.getpid(), directory=start_directory())}
        self.node_client: NodeClient = NodeClient(
            access,
            self._record(),
            settings,
            answers={name: functools.partial(handle, self) for name, handle in ANSWERS.items()},
            on_failure=self._log_failure,
        )
        self.attaching = self.node_client.attaching
        if "debugpy" not in sys.modules and importlib.util.find_spec("debugpy") is None:
            self.attaching.report(State.HOPELESS, debugpy_missing())
        self.node_client.start()

    @property
    def _where_and_when(self) -> str:
        """`where`, followed by "once the agent is listening" until the agent is listening."""
        return self.where if self.attaching.listening.is_set() else f"{self.where} once the agent is listening"

    def log(self, text: str) -> None:
        """Write a line to the job's stderr, with the rank if the job has several."""
        has_ranks = self.identity.world_size not in {None, 1} or self.identity.rank
        write_line(f"rank {self.identity.rank}: {text}" if has_ranks else text)

    def log_limits(self) -> None:
        """Log which settings do not have the effect that a user would expect."""
        if self.is_local:
            self.log(f"no debugger can attach: {NO_RELAY}; --debug-monitor writes to outputs/")
        if self.settings.metrics and not self.settings.monitor:
            self.log("--debug-metrics has no effect without --debug-monitor")

    def wait(self, seconds: float, *, detail: str = "") -> bool:
        """Wait up to `seconds` for a debugger and return whether one is attached.

        Return early if the agent fails, or has not reached the relay about 30 s after its start; in a local run, return
        immediately.

        Args:
            seconds: Time limit in seconds.
            detail: The reason for waiting, such as "breakpoint() at train.py:12"; part of the announcement.
        """
        if debugger.is_attached():
            return True
        if self.is_local:
            return False
        self.node_client.set_state("waiting", detail, until=time.time() + seconds)
        announce_running = self.node_client.prepare_state("running")
        is_attached = False
        try:
            is_attached = debugger.wait_for_attach(seconds, self.attaching.futile)
            if not is_attached:
                self._log_unreachable()
            return is_attached
        finally:
            if is_attached or not self._exits_without:
                announce_running()

    def hold_at(self, frame: FrameType, cause: str, seconds: float, *, is_before_line: bool = False) -> bool:
        """Wait for a debugger and stop in `frame` as `stop_in` does; return False if none attaches within `seconds`."""
        place = f"{cause} at {os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"  # noqa: PTH119 - 10 ms
        if not debugger.is_attached() and not self.attaching.futile.is_set():
            self.log(f"{place}: waiting up to {seconds:g} s for a debugger on {self.where}")
        if not self.wait(seconds, detail=place):
            return False
        debugger.break_at(frame, is_before_line=is_before_line)
        return True

    def wait_and_log(self, seconds: float) -> bool:
        """Wait as `wait` does (not at all if `seconds` is 0), and log the start and the outcome to stderr."""
        started = time.monotonic()
        if debugger.is_attached():
            self.log("a debugger is already attached")
            return True
        if self.is_local:
            return False
        self._exits_without = seconds > 0 and self.settings.abort_on_timeout
        if self.attaching.hopeless.is_set():
            self._log_failure(self.attaching.obstacle)
            return False
        if seconds > 0:
            self.attaching.registered.wait(AGENT_TIME)  # a process that has been refused does not wait
        if not self.attaching.hopeless.is_set():
            waiting = f"waiting up to {seconds:g} s for a debugger on {self.where}"
            self.log(waiting if seconds > 0 else f"a debugger can attach on {self._where_and_when}")
        if seconds > 0 and self.wait(seconds):
            self._exits_without = False
            self.log(f"debugger attached after {time.monotonic() - started:.1f} s")
            return True
        if self.attaching.hopeless.is_set():
            self._log_failure(self.attaching.obstacle)
        elif seconds > 0 and self.attaching.obstacle is None and not self._exits_without:
            still = "still " if self.attaching.listening.is_set() else ""
            later = f"a debugger can {still}attach on {self._where_and_when}"
            self.log(f"no debugger attached within {seconds:g} s; continuing ({later})")
        return False

    def hold_crash(self, exception: str) -> bool:
        """Wait for a debugger after an uncaught exception, and return whether one is attached.

        The process is announced as crashed until the end of the hold, including while a debugger is attached.
        """
        from relay_agent.debuggee.post_mortem import crash_place  # noqa: PLC0415 - imported already, by the caller

        hold, place = self.settings.hold, crash_place()
        if debugger.is_attached():
            self.log(f"crashed: {exception}; a debugger is attached")
            self.agent_of_debugger = self.node_client.connections
            self.node_client.set_state("crashed", exception, place=place)
            return True
        self._is_held = True
        self.attaching.decided.wait(AGENT_TIME)
        if self.attaching.futile.is_set():
            self.log(f"crashed: {exception}; not held for a debugger: {self.attaching.obstacle}")
            return False
        where = self._where_and_when
        self.log(f"crashed: {exception}; held for up to {hold:g} s; a debugger can attach on {where}")
        self.node_client.set_state("crashed", exception, time.time() + hold, place=place)
        if debugger.wait_for_attach(hold, self.attaching.futile):
            self._is_held = False
            self.agent_of_debugger = self.node_client.connections
            return True
        self.log(
            f"no debugger can attach; exiting: {self.attaching.obstacle}"
            if self.attaching.obstacle
            else NOBODY_ATTACHED
        )
        return False

    def is_agent_lost(self) -> bool:
        """Return whether the agent through which the last debugger attached has been killed.

        Another agent may have replaced it.
        """
        return not self.node_client.is_agent_alive() or self.node_client.connections != self.agent_of_debugger

    def _log_unreachable(self) -> None:
        """Log once that this process is not waiting for a debugger, because its agent cannot reach the relay."""
        error = self.attaching.obstacle
        if error is None or self.attaching.hopeless.is_set() or self._unreachable_logged:
            return
        self._unreachable_logged = True
        hint = f". hint: {error.hint}" if error.hint else ""
        if self._exits_without:
            self.log(f"no longer waiting for a debugger: {error.sentence}{hint}")
            return
        self.log(
            f"continuing without a debugger: {error.sentence}; the agent keeps trying, and a debugger can attach on "
            f"{self.where} as soon as the agent is listening{hint}"
        )

    def _log_failure(self, failure: RelayDebugError | None) -> None:
        """Log once that no debugger can attach, whether or not the job is waiting for one."""
        if not self._is_held and self._failure_logged.acquire(blocking=False):
            reason = failure or "the agent has exited"
            if debugger.is_attached():  # an agent whose key was revoked still serves connected clients
                self.log(f"no further debugger can attach: {reason}")
            elif self._exits_without and not self.node_client.was_refused:
                self.log(f"no debugger can attach: {reason}")
            else:
                self.log(f"continuing without a debugger: {reason}")

    def _record(self) -> TargetRecord:
        identity = self.identity
        return {
            "port": self.port,
            "rank": identity.rank,
            "world": identity.world_size,
            "node_rank": identity.node_rank,
            "run": identity.run_id,
            "launched": identity.is_launched,
            "on_crash": self.settings.on_crash,
            "pid": os.getpid(),
            "script": script_name(),
            "cwd": start_directory(),
            "state": "running",
            "since": time.time(),
        }


def _hold_at_signal(frame: FrameType) -> None:
    """Wait for a debugger because of SIGTRAP; errors are reported, because the job's code must not see them."""
    try:
        process = current()
        if process is None:
            write_line(f"SIGTRAP: process {os.getpid()} is not registered; send the signal to its parent")
        else:
            process.hold_at(frame, "SIGTRAP", process.settings.hold)
    except Exception as error:  # noqa: BLE001 - an exception in a signal handler would be raised in the job's code
        report_failure(f"{type(error).__name__}: {error}")
