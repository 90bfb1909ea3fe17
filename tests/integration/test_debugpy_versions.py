"""Facts about the oldest and the newest debugpy: attaching, stepping with prefetch, children, and listening editors."""

import asyncio
import sys
from pathlib import Path

import pytest

from relay_agent.debugpy_internals.feature import CHECKED_VERSIONS
from relay_client.dap.client import DapClient
from relay_core.dap.framing import Message
from relay_core.dap.prefetch import PREFETCH_EVENT, PREFETCH_SET, RequestTemplate
from tests.support.deadline import DEADLINE
from tests.support.follower import Follower
from tests.support.jobs import ROOT, job
from tests.support.listening import listening_editor
from tests.support.ports import free_port

OLDEST = ROOT / ".debugpy-lowest-{}.{}".format(*sys.version_info)
"""Where the Makefile has put it; the newest is that of the environment."""
VERSIONS = [
    pytest.param(
        f"{OLDEST}:{CHECKED_VERSIONS[0]}",
        marks=pytest.mark.skipif(not OLDEST.is_dir(), reason="`make test` installs the oldest debugpy, with a network"),
        id="oldest",
    ),
    pytest.param(":", id="newest"),
]
HEAD = """
    import runpy, threading
    place, _, version = sys.argv[1].partition(":")
    if place:
        sys.path.insert(0, place)
    import debugpy
    assert version in {"", debugpy.__version__}, debugpy.__version__
    from relay_agent.debuggee.debugger import debugger
"""
WORK = """\
def work(number):
    square = number * number
    double = number + number
    return square + double

if __name__ == "__main__":
    work(7)
"""
BREAKPOINT = 2
"""The line of `square = ...`."""
TEMPLATES = [RequestTemplate("stackTrace"), RequestTemplate("scopes"), RequestTemplate("variables")]
SET = {"after": 5, "questions": [template.as_json() for template in TEMPLATES]}


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "work.py"
    path.write_text(WORK)
    return path


@pytest.mark.parametrize("version", VERSIONS)
async def test_sessions(script: Path, version: str) -> None:
    """Two editors in a row stop, step with prefetched variables and continue twice; nothing is switched off."""
    code = f"""{HEAD}
    for _ in range(2):
        print(debugger.arm(), flush=True)
        debugger.wait_for_attach(3600, threading.Event())
        runpy.run_path(sys.argv[2], run_name="__main__")
        sys.stdin.readline()
        debugger.release()
        print(debugger.state.name, flush=True)
    """
    async with job(code, version, str(script)) as running:
        for _ in range(2):
            async with await DapClient.connect("127.0.0.1", int(await running.line()), within=DEADLINE) as client:
                await client.attach({str(script): [{"line": BREAKPOINT}]}, within=DEADLINE)
                thread = {"threadId": (await client.wait_for_event("stopped", within=DEADLINE))["body"]["threadId"]}
                await client.request("next", {**thread, PREFETCH_SET: SET}, within=DEADLINE)
                assert {"number": "7", "square": "49"} == await prefetched_variables(client)
                await asyncio.gather(*(client.request("continue", thread, within=DEADLINE) for _ in range(2)))
                await client.request("disconnect", {"terminateDebuggee": False}, within=DEADLINE)
            assert running.process.stdin is not None
            running.process.stdin.write(b"\n")
            assert "RELEASED" == await running.line()
        assert (0, [], "") == await running.finish()


async def prefetched_variables(client: DapClient) -> dict[str, str]:
    """Wait for the next stop, and return the local variables that come with it."""
    event: Message = (await client.wait_for_event("stopped", within=DEADLINE))["body"][PREFETCH_EVENT]
    while True:
        for response in event["answered"]:
            if response["command"] == "variables":
                return {variable["name"]: variable["value"] for variable in response["body"]["variables"]}
        event = (await client.wait_for_event(PREFETCH_EVENT, within=DEADLINE))["body"]


@pytest.mark.parametrize("version", VERSIONS)
async def test_listening_editors(script: Path, version: str) -> None:
    """A job connects to a listening editor, stops there, and connects to the next one when that has left."""
    code = f"""{HEAD}
    for port in map(int, sys.stdin):
        debugger.connect(port)
        debugger.wait_for_attach(3600, threading.Event())
        runpy.run_path(sys.argv[2], run_name="__main__")
        debugger.release()
        print(debugger.state.name, flush=True)
    """
    port = free_port()
    async with job(code, version, str(script)) as running:
        assert running.process.stdin is not None
        for _ in range(2):
            async with listening_editor(port, script, BREAKPOINT) as editor:
                running.process.stdin.write(f"{port}\n".encode())
                await editor.until_stopped()
                assert "7" == await editor.value("number")
                await editor.leave()
            assert "CLEARED" == await running.line()
        running.process.stdin.close()
        assert 0 == await running.process.wait()


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.parametrize("version", VERSIONS)
async def test_children(script: Path, version: str, method: str) -> None:
    """An editor that follows children stops in each, however it was started."""
    code = f"""{HEAD}
    import multiprocessing
    sys.path.insert(0, sys.argv[2])
    import work
    print(debugger.arm(follow_children=True), flush=True)
    debugger.wait_for_attach(3600, threading.Event())
    process = multiprocessing.get_context(sys.argv[3]).Process(target=work.work, args=[7])
    process.start()
    process.join()
    """
    async with job(code, version, str(script.parent), method) as running:
        async with await DapClient.connect("127.0.0.1", int(await running.line()), within=DEADLINE) as client:
            follower = Follower(script, BREAKPOINT)
            await client.attach(follower.breakpoints, within=DEADLINE)
            await follower.follow(client)
        assert 0 == (await running.finish())[0]
    assert 1 == follower.stops
