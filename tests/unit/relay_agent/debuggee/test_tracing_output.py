"""Facts about stdout and stderr after a debug session with `redirectOutput`."""

from relay_client.dap import DapClient
from tests.support.deadline import DEADLINE
from tests.support.jobs import job

CODE = """
    import logging, threading
    from relay_agent.debuggee.debugger import debugger
    own = sys.stdout, sys.stderr
    for _ in range(2):
        print(debugger.arm(), flush=True)
        debugger.wait_for_attach(3600, threading.Event())
        redirected = logging.StreamHandler().stream  # stays in use after the session
        is_redirected = redirected is not own[1] and sys.stdout is not own[0]
        while debugger.is_attached():
            pass
        debugger.release()
        print(is_redirected, (sys.stdout, sys.stderr) == own, redirected._redirect_to == own[1:], flush=True)
"""
REPLACED = """
    import threading
    from relay_agent.debuggee.debugger import debugger
    print(debugger.arm(), flush=True)
    debugger.wait_for_attach(3600, threading.Event())

    class Upper:
        def __init__(self, stream):
            self.write, self.flush = lambda text: stream.write(text.upper()), stream.flush

    sys.stdout = Upper(sys.stdout)
    while debugger.is_attached():
        pass
    debugger.release()
    print("job", flush=True)
"""


async def session(port: int) -> None:
    """Attach and disconnect."""
    async with await DapClient.connect("127.0.0.1", port, within=DEADLINE) as client:
        await client.attach({}, redirectOutput=True, within=DEADLINE)
        await client.request("disconnect", {"terminateDebuggee": False}, within=DEADLINE)


async def test_streams_are_put_back() -> None:
    """After each session, the job has its own streams, and a stream that it has stored passes on to its own only."""
    async with job(CODE) as running:
        for _ in range(2):
            await session(int(await running.line()))
            assert "True True True" == await running.line()
        assert (0, [], "") == await running.finish()


async def test_stream_of_the_job() -> None:
    """A stream with which the job has replaced the redirected one stays."""
    async with job(REPLACED) as running:
        await session(int(await running.line()))
        assert "JOB" == await running.line()
        assert (0, [], "") == await running.finish()
