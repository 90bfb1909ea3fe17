"""Facts about stdout and stderr after a debug session with `redirectOutput`."""

from relay_client.dap import DapClient
from tests.support.jobs.processes import Job, job
from tests.support.machine.deadline import DEADLINE

CODE = """
    import logging, threading
    from relay_agent.debuggee.debugger import debugger
    own = sys.stdout, sys.stderr
    for _ in range(2):
        print(debugger.arm(), flush=True)
        print(debugger.wait_for_attach(3600, threading.Event()), flush=True)
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
    print(debugger.wait_for_attach(3600, threading.Event()), flush=True)

    class Upper:
        def __init__(self, stream):
            self.write, self.flush = lambda text: stream.write(text.upper()), stream.flush

    sys.stdout = Upper(sys.stdout)
    while debugger.is_attached():
        pass
    debugger.release()
    print("job", flush=True)
"""


async def session(running: Job) -> None:
    """Attach to the port that a job has printed, and disconnect as soon as the job has noticed."""
    async with await DapClient.connect("127.0.0.1", int(await running.line()), within=DEADLINE) as client:
        await client.attach({}, redirectOutput=True, within=DEADLINE)
        assert "True" == await running.line()
        await client.request("disconnect", {"terminateDebuggee": False}, within=DEADLINE)


async def test_streams_are_put_back() -> None:
    """After each session, the job has its own streams, and a stream that it has stored passes on to its own only."""
    async with job(CODE) as running:
        for _ in range(2):
            await session(running)
            assert "True True True" == await running.line()
        assert (0, [], "") == await running.finish()


async def test_stream_of_the_job() -> None:
    """A stream with which the job has replaced the redirected one stays."""
    async with job(REPLACED) as running:
        await session(running)
        assert "JOB" == await running.line()
        assert (0, [], "") == await running.finish()
