"""Facts about the end of the debugger before eventlet or gevent patches threads."""

import sys
from importlib.util import find_spec

import pytest

from tests.support.jobs import run_job

pytestmark = pytest.mark.job
# Not imported here: eventlet warns of each later fork of this process.
NEEDS_EVENTLET = pytest.mark.skipif(find_spec("eventlet") is None, reason="eventlet is not installed (make extras)")
NEEDS_GEVENT = pytest.mark.skipif(find_spec("gevent") is None, reason="gevent is not installed (make extras)")

PATCH = """
    import socket, warnings; warnings.simplefilter("ignore")
    from relay_agent.debuggee.late_patching import install
    def before(reason):
        print("before", socket.socket.__module__)
    {first}
    {second}
    eventlet.monkey_patch(socket=True)
    print("after", socket.socket.__module__)
    eventlet.monkey_patch()
"""
INSTALL = "install(before_patch=before)"


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
async def test_gevent_from_python_313() -> None:
    """Before gevent patches threads, the function is called in the versions in which the job would not exit."""
    status, out, err = await run_job("""
        import threading
        from relay_agent.debuggee.late_patching import install
        def before(reason):
            print("before", threading.local.__module__, "Python 3.11" in reason)
        install(before_patch=before)
        from gevent import monkey
        monkey.patch_all()
        print("after", threading.local.__module__)
    """)
    expected = ["before _thread True"] if sys.version_info >= (3, 13) else []
    assert (0, [*expected, "after gevent._gevent_clocal"]) == (status, out), err
