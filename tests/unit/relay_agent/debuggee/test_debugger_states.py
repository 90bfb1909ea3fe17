"""Facts about the states of the debugger in a job: the table is what really happens, with the real debugpy."""

import textwrap

import pytest

from relay_agent.debuggee.debugger import TRANSITIONS, State
from tests.support.jobs.processes import run_job

WATCHED = """\
import os, psutil, socket, sys, time
from relay_agent.debuggee.debugger import Debugger, Event, pydevd_debugger
from relay_core.errors import RelayDebugError

class Watched(Debugger):
    "Prints each transition that is stored."
    def _move(self, event):
        before = self._state
        super()._move(event)
        print(before.name, event.name, self._state.name, flush=True)

debugger = Watched()

def look():
    "Print the transition that is seen but not stored."
    event = "GONE" if pydevd_debugger() is None else "FOUND"
    print(debugger._state.name, event, debugger.state.name, flush=True)

def until_gone():
    while pydevd_debugger() is not None:
        time.sleep(0.01)

def kill_adapter():
    started_as = sys.modules["debugpy.server.api"]._adapter_process.args  # it starts another and ends
    for process in psutil.process_iter(["cmdline"]):
        if (process.info["cmdline"] or [])[1:] == list(started_as)[1:]:
            process.kill()
    until_gone()

def fork():
    if not (child := os.fork()):
        os._exit(0)
    os.waitpid(child, 0)

class Editor:
    "A program that listens where an editor would, and hangs up."
    def __enter__(self):
        self.listener = socket.create_server(("127.0.0.1", 0))
        return self.listener.getsockname()[1]
    def __exit__(self, *_):
        self.listener.accept()[0].close()
        self.listener.close()
        until_gone()

def without_debugpy(call):
    kept = sys.modules.pop("debugpy", None)
    sys.modules["debugpy"] = None
    try:
        call()
    except RelayDebugError:
        pass
    del sys.modules["debugpy"]
    if kept is not None:
        sys.modules["debugpy"] = kept

def forking_while_it_starts():
    import debugpy
    listen = debugpy.listen
    def listen_late(address):
        fork()
        return listen(address)
    debugpy.listen = listen_late
    debugger.arm()
    debugpy.listen = listen
"""

SCENARIOS = {
    "listens": (
        """
        debugger.arm(); debugger.arm(); debugger.release(); debugger.release()
        fork()
        debugger.arm()
        fork()
        """,
        """
        ABSENT LISTENS LISTENING
        LISTENING RELEASE RELEASED
        RELEASED FORKED CLEARED
        RELEASED RESUME LISTENING
        LISTENING FORKED ABSENT
        """,
    ),
    "its adapter is killed": (
        """
        debugger.arm(); kill_adapter(); look()
        debugger.arm(); debugger.release(); kill_adapter(); look()
        debugger.arm()
        """,
        """
        ABSENT LISTENS LISTENING
        LISTENING GONE ABSENT
        ABSENT LISTENS LISTENING
        LISTENING RELEASE RELEASED
        RELEASED GONE CLEARED
        CLEARED LISTENS LISTENING
        """,
    ),
    "dials editors": (
        """
        with Editor() as port:
            debugger.connect(port); fork()
        look()
        debugger.release(); fork()
        with Editor() as port:
            debugger.connect(port)
        look()
        """,
        """
        ABSENT CONNECTED DIALLED
        DIALLED FORKED ABSENT
        DIALLED GONE ABSENT
        ABSENT RELEASE CLEARED
        CLEARED FORKED CLEARED
        CLEARED CONNECTED DIALLED
        DIALLED GONE ABSENT
        """,
    ),
    "does not start": (
        """
        without_debugpy(debugger.arm); fork()
        forking_while_it_starts(); kill_adapter(); debugger.release()
        without_debugpy(debugger.arm)
        forking_while_it_starts()
        """,
        """
        ABSENT FORKED ABSENT
        ABSENT FORKED ABSENT
        ABSENT LISTENS LISTENING
        ABSENT RELEASE CLEARED
        CLEARED FORKED CLEARED
        CLEARED LISTENS LISTENING
        """,
    ),
    "is the job's own": (
        """
        import debugpy
        debugpy.listen(0)
        debugger.release(); look()
        """,
        "ABSENT FOUND FOREIGN",
    ),
    "is the job's own, after another": (
        """
        with Editor() as port:
            debugger.connect(port)
        debugger.release()
        import debugpy
        debugpy.listen(0)
        debugger.release(); look()
        """,
        """
        ABSENT CONNECTED DIALLED
        ABSENT RELEASE CLEARED
        CLEARED FOUND FOREIGN
        """,
    ),
}


def lines(text: str) -> list[str]:
    return textwrap.dedent(text).strip().splitlines()


@pytest.mark.parametrize("scenario", SCENARIOS)
async def test_transitions_in_a_job(scenario):
    """A debugger goes through exactly these states."""
    code, expected = SCENARIOS[scenario]
    status, out, _ = await run_job(WATCHED + textwrap.dedent(code), PYDEVD_DISABLE_FILE_VALIDATION="1")
    assert (status, out) == (0, lines(expected))


def test_every_transition_is_shown():
    """The transitions of these jobs are those of the table: none is missing, none is possible besides."""
    shown = {line for _, expected in SCENARIOS.values() for line in lines(expected)}
    table = {f"{state.name} {event.name} {after.name}" for (state, event), after in TRANSITIONS.items()}
    assert shown == table


def test_table_has_a_row_for_each_state():
    """Every state but FOREIGN, which is left alone, has rows, so it can be left."""
    assert {state for state, _ in TRANSITIONS} == set(State) - {State.FOREIGN}
