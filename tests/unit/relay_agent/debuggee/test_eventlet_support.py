"""Facts about the end of the debugger before eventlet patches the standard library."""

from importlib.util import find_spec

import pytest

from tests.support.jobs import run_job

pytestmark = [
    pytest.mark.job,
    # Not imported here: it warns of each later fork of this process.
    pytest.mark.skipif(find_spec("eventlet") is None, reason="eventlet is not installed (make extras)"),
]

PATCH = """
    import socket, warnings; warnings.simplefilter("ignore")
    from relay_agent.debuggee.eventlet_support import install
    def before():
        print("before", socket.socket.__module__)
    {first}
    {second}
    eventlet.monkey_patch(socket=True)
    print("after", socket.socket.__module__)
    eventlet.monkey_patch()
"""
INSTALL = "install(before_patch=before)"


@pytest.mark.parametrize("lines", [(INSTALL, "import eventlet"), ("import eventlet", INSTALL)])
async def test_function_is_called_before_the_patch(lines: tuple[str, str]) -> None:
    """It is called at each call of `monkey_patch`, whether eventlet was imported before or is imported later."""
    status, out, err = await run_job(PATCH.format(first=lines[0], second=lines[1]))
    assert (0, ["before socket", "after eventlet.greenio.base", "before eventlet.greenio.base"]) == (status, out), err


async def test_a_second_installation_has_no_effect() -> None:
    """The debugger starts anew for each session."""
    status, out, err = await run_job(PATCH.format(first="import eventlet", second=f"{INSTALL}; {INSTALL}"))
    assert (0, 3) == (status, len(out)), err
