"""Facts about how pydevd sends: at once, and nothing that is too large for debugpy's adapter."""

from pathlib import Path

import pytest

from relay_agent.debuggee.pydevd_patches.sending import KEPT_OUTPUT
from relay_client.dap import DapClient, RequestFailed
from tests.support.editors.follower import Follower
from tests.support.jobs.processes import gone, job
from tests.support.machine.deadline import DEADLINE

CODE = """
    import os, threading
    from relay_agent.debuggee.debugger import debugger
    stdout, sys.stdout = sys.stdout, open(os.devnull, "w")
    print(debugger.arm(), file=stdout, flush=True)
    debugger.wait_for_attach(3600, threading.Event())
    breakpoint()
    print("x" * 20_000_000)
    breakpoint()
    print("it stops before this line")
"""
IS_PROMPT = "__import__('pydevd').get_global_debugger().writer.sock.getsockopt(6, 1)"
"""TCP_NODELAY of the connection to debugpy's adapter."""


async def test_output_is_cut_and_answers_are_refused():
    """20 MB of printed text come as their beginning, 20 MB of an answer as an error, and others at once."""
    async with (
        job(CODE) as running,
        await DapClient.connect("127.0.0.1", int(await running.line()), within=DEADLINE) as client,
    ):
        await client.attach({}, redirectOutput=True, within=DEADLINE)
        stopped = await client.wait_for_event("stopped", within=DEADLINE)
        await client.request("continue", {"threadId": stopped["body"]["threadId"]}, within=DEADLINE)
        printed = await client.wait_for_event(
            "output", matching=lambda body: body["output"].startswith("x"), within=DEADLINE
        )
        text, note = printed["body"]["output"].split("\n", 1)
        assert KEPT_OUTPUT == len(text)
        assert note.startswith("[truncated by relay-agent: the output is 20,000,")
        stopped = await client.wait_for_event("stopped", within=DEADLINE)
        arguments = {"threadId": stopped["body"]["threadId"], "levels": 1}
        frame = (await client.request("stackTrace", arguments, within=DEADLINE))["stackFrames"][0]["id"]
        with pytest.raises(RequestFailed, match="the response is 20,000,[0-9]+ bytes long, but debugpy's limit is"):
            await evaluate(client, frame, "'x' * 20_000_000")
        assert "1" == await evaluate(client, frame, IS_PROMPT)


CHILD = """\
def work():
    pass
"""
PARENT = """
    import multiprocessing, threading
    from relay_agent.debuggee.debugger import debugger
    sys.path.insert(0, sys.argv[1])
    import child
    print(debugger.arm(follow_children=True), flush=True)
    debugger.wait_for_attach(3600, threading.Event())
    process = multiprocessing.get_context(sys.argv[2]).Process(target=child.work)
    process.start()
    process.join()
"""
IN_WORK = 2
"""A line of CHILD."""


@pytest.mark.parametrize("method", ["fork", "spawn"])
async def test_children_that_are_followed(tmp_path: Path, method: str):
    """In a child too, forked or started anew, answers come at once, and too large ones are errors."""
    script = tmp_path / "child.py"
    script.write_text(CHILD)
    looked = []

    async def look(client: DapClient, thread: int) -> None:
        stack = await client.request("stackTrace", {"threadId": thread, "levels": 1}, within=DEADLINE)
        frame = stack["stackFrames"][0]["id"]
        looked.append(await evaluate(client, frame, IS_PROMPT))
        with pytest.raises(RequestFailed, match="the response is 20,000,[0-9]+ bytes"):
            await evaluate(client, frame, "'x' * 20_000_000")

    async with job(PARENT, str(tmp_path), method) as running:
        async with await DapClient.connect("127.0.0.1", int(await running.line()), within=DEADLINE) as client:
            follower = Follower(script, IN_WORK, look)
            await client.attach(follower.breakpoints, within=DEADLINE)
            await follower.follow(client)
            assert await gone(running.pid)
        assert (await running.finish())[0] == 0
    assert looked == ["1"]


async def evaluate(client: DapClient, frame: int, expression: str) -> str:
    arguments = {"expression": expression, "frameId": frame, "context": "clipboard"}
    return (await client.request("evaluate", arguments, within=DEADLINE))["result"]
