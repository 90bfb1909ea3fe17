"""Facts about messages that are too large for debugpy's adapter."""

import pytest

from relay_agent.message_limit import KEPT_OUTPUT
from relay_client.dap.client import DapClient, RequestFailed
from tests.support.jobs import job

CODE = """
    import os, threading
    from relay_agent import debuggee
    stdout, sys.stdout = sys.stdout, open(os.devnull, "w")
    print(debuggee.arm(), file=stdout, flush=True)
    debuggee.wait_for_attach(30, threading.Event())
    breakpoint()
    print("x" * 20_000_000)
    breakpoint()
    print("it stops before this line")
"""


async def test_output_is_cut_and_answers_are_refused():
    """20 MB of printed text come as their beginning, 20 MB of an answer as an error, and the session goes on."""
    async with job(CODE) as running, await DapClient.connect("127.0.0.1", int(await running.line())) as client:
        await client.attach({}, redirectOutput=True, within=30)
        stopped = await client.wait_for_event("stopped", within=30)
        await client.request("continue", {"threadId": stopped["body"]["threadId"]}, within=30)
        printed = await client.wait_for_event("output", matching=lambda body: body["output"].startswith("x"), within=30)
        text, note = printed["body"]["output"].split("\n", 1)
        assert KEPT_OUTPUT == len(text)
        assert note.startswith("[cut by relay-agent: this had 20,000,")
        stopped = await client.wait_for_event("stopped", within=30)
        arguments = {"threadId": stopped["body"]["threadId"], "levels": 1}
        frame = (await client.request("stackTrace", arguments, within=30))["stackFrames"][0]["id"]
        with pytest.raises(RequestFailed, match="the answer has 20,000,[0-9]+ bytes, and debugpy carries less than"):
            await evaluate(client, frame, "'x' * 20_000_000")
        assert "2" == await evaluate(client, frame, "1 + 1")


async def evaluate(client: DapClient, frame: int, expression: str) -> str:
    arguments = {"expression": expression, "frameId": frame, "context": "clipboard"}
    return (await client.request("evaluate", arguments, within=30))["result"]
