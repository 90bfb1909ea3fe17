"""Facts about the end of the debugger before eventlet or gevent patches threads."""

from importlib.util import find_spec
from pathlib import Path

import pytest

from relay_client.dap import DapClient
from tests.support.editors.follower import Follower
from tests.support.jobs.processes import job, run_job
from tests.support.machine.deadline import DEADLINE

pytestmark = pytest.mark.job
# Not imported here: eventlet warns of each later fork of this process.
NEEDS_EVENTLET = pytest.mark.skipif(find_spec("eventlet") is None, reason="eventlet is not installed (make extras)")
NEEDS_GEVENT = pytest.mark.skipif(find_spec("gevent") is None, reason="gevent is not installed (make extras)")

PATCH = """
    import socket, warnings; warnings.simplefilter("ignore")
    from relay_agent.debuggee.gevent_support import watch_patches
    def before(reason):
        print("before", socket.socket.__module__)
    {first}
    {second}
    eventlet.monkey_patch(socket=True)
    print("after", socket.socket.__module__)
    eventlet.monkey_patch()
"""
INSTALL = "watch_patches(before_patch=before)"


@NEEDS_EVENTLET
@pytest.mark.parametrize("lines", [(INSTALL, "import eventlet"), ("import eventlet", INSTALL)])
async def test_function_is_called_before_the_patch(lines: tuple[str, str]) -> None:
    """It is called at each call of `monkey_patch`, whether eventlet was imported before or is imported later."""
    status, out, err = await run_job(PATCH.format(first=lines[0], second=lines[1]))
    assert (0, ["before socket", "after eventlet.greenio.base", "before eventlet.greenio.base"]) == (status, out), err


@NEEDS_EVENTLET
async def test_a_second_installation_has_no_effect() -> None:
    """The debugger starts anew for each session."""
    status, out, err = await run_job(PATCH.format(first="import eventlet", second=f"{INSTALL}; {INSTALL}"))
    assert (0, 3) == (status, len(out)), err


@NEEDS_GEVENT
@pytest.mark.parametrize(
    ("environment", "lines"),
    [({}, ["before _thread"]), ({"GEVENT_SUPPORT": "True"}, [])],
    ids=["unprepared", "prepared"],
)
async def test_gevent(environment: dict[str, str], lines: list[str]) -> None:
    """The function is called before gevent patches threads, unless pydevd is prepared for that."""
    status, out, err = await run_job(
        """
        import threading
        from relay_agent.debuggee import debugpy_start
        from relay_agent.debuggee.gevent_support import watch_patches
        debugpy_start.load(follow_children=False)
        def before(reason):
            assert "hint: set GEVENT_SUPPORT=True" in reason
            print("before", threading.local.__module__)
        watch_patches(before_patch=before)
        from gevent import monkey
        monkey.patch_all()
        print("after", threading.local.__module__)
        """,
        **environment,
    )
    assert (0, [*lines, "after gevent._gevent_clocal"]) == (status, out), err


PARENT = """
    import subprocess, sys
    from relay_agent.debuggee.debugger import debugger
    print(debugger.arm(follow_children=True), flush=True)
    sys.stdin.readline()
    print(subprocess.run([sys.executable, sys.argv[1]]).returncode, flush=True)
"""
CHILD = """\
import warnings; warnings.simplefilter("ignore")
{patch}
import time
time.sleep(0.01)
print("done", flush=True)
"""


@pytest.mark.parametrize(
    "patch",
    [
        pytest.param("from gevent import monkey; monkey.patch_all()", marks=NEEDS_GEVENT, id="gevent"),
        pytest.param("import eventlet; eventlet.monkey_patch()", marks=NEEDS_EVENTLET, id="eventlet"),
    ],
)
async def test_child_process_that_patches(tmp_path: Path, patch: str) -> None:
    """The session of a child ends before the child patches its threads; the child runs to its end."""
    script = tmp_path / "child.py"
    script.write_text(CHILD.format(patch=patch))
    async with job(PARENT, str(script)) as running:
        port = int(await running.line())
        async with await DapClient.connect("127.0.0.1", port, within=DEADLINE) as client:
            follower = Follower(script, 2)
            await client.attach(follower.breakpoints, within=DEADLINE)
            assert running.process.stdin is not None
            running.process.stdin.write(b"\n")
            await follower.follow(client)
        status, out, err = await running.finish()
    assert (0, ["done", "0"], 1) == (status, out, follower.stops), err
    assert 1 == len(err.splitlines())
    assert err.startswith("relay-agent: the debugger has ended: ")
