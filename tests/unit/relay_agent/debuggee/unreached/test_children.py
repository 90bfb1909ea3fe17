"""Facts about the child processes that no debugger reaches."""

import sys

import pytest

from relay_agent.debuggee.unreached.children import describe, describe_ended
from tests.support.jobs.processes import run_job

CHILDREN = """
    import multiprocessing, os, socket, subprocess, time
    from relay_agent.debuggee.unreached import children

    IDLE = "import sys; sys.stdin.read()"
    alive, own_end = os.pipe()
    adapter = socket.create_server(("127.0.0.1", 0))
    port = adapter.getsockname()[1]
    own_connection = socket.create_connection(("127.0.0.1", port))  # of this process's debugger

    def forked(connects=False):
        ready, child_end = os.pipe()
        if child := os.fork():
            os.read(ready, 1)
            return child
        os.close(own_end)
        connection = socket.create_connection(("127.0.0.1", port)) if connects else None
        os.write(child_end, b"x")
        os.read(alive, 1)
        os._exit(0)

    kept = []

    def python():
        kept.append(subprocess.Popen([sys.executable, "-c", IDLE], stdin=subprocess.PIPE))
        return kept[-1].pid

    context = multiprocessing.get_context("forkserver")
    code = "import multiprocessing; multiprocessing.parent_process().join()"
    worker = context.Process(target=exec, args=(code,), daemon=True)
    worker.start()  # below the server; there is also a resource tracker
    shell = subprocess.Popen(["sh", "-c", f"{sys.executable} -c '{IDLE}' <&0; true"], stdin=subprocess.PIPE)
    expected = {"python": python(), "forked": forked(), "worker": worker.pid}
    known = {"registered": python(), "followed": forked(connects=True), "shell": shell.pid}
    children.set_registered([known["registered"], os.getpid()])
    while len(found := set(children.unfollowed_children(port))) < 4:  # the shell starts its child a little later
        time.sleep(0.01)
    below_shell = found - set(expected.values())
    print(set(expected.values()) <= found, not found & set(known.values()), len(below_shell), flush=True)
    os._exit(0)
"""


@pytest.mark.job
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
async def test_python_children_without_a_debugger_are_found() -> None:
    """Found are Python processes at any depth, but no helpers, and none that are registered or followed."""
    status, printed, errors = await run_job(CHILDREN)
    assert (0, ["True True 1"], "") == (status, printed, errors)


def test_the_line_names_the_children_and_the_way_out() -> None:
    """One child and many have a line that fits the sentence; the hint depends on whether children are followed."""
    one = "breakpoints are not hit in child process 7, which is not followed"
    assert describe([7], is_followed=True).startswith(f"{one}: it started before the debugger attached. hint: attach")
    assert describe([7], is_followed=False).startswith(f'{one}. hint: set "subProcess": true in launch.json')
    assert "in 6 child processes (pids 1, 2, 3, 4, 5, ...), which" in describe(range(1, 7), is_followed=True)


def test_children_that_have_ended_are_counted() -> None:
    """Children that end at once are reported with their number and the way out, because their ids are of no use."""
    line = "breakpoints are not hit in child processes that end within a second (3 seen), which are not followed. hint:"
    assert describe_ended([7, 8, 9, 7]).startswith(line)
