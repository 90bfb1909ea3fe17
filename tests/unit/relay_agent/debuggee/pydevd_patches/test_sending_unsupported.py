"""Facts about requests that debugpy does not support."""

import pytest

from relay_client.dap import DapClient, RequestFailed
from tests.support.jobs.processes import job
from tests.support.machine.deadline import DEADLINE

CODE = """
    import threading
    from relay_agent.debuggee.debugger import debugger
    print(debugger.arm(), flush=True)
    debugger.wait_for_attach(3600, threading.Event())
    breakpoint()
    print("it stops before this line")
"""
UNSUPPORTED = {
    "breakpointLocations": {"source": {"path": "/work.py"}, "line": 1},
    "cancel": {},
    "disassemble": {"memoryReference": "1", "instructionCount": 1},
    "loadedSources": {},
    "readMemory": {"memoryReference": "1", "count": 1},
    "restart": {},
    "restartFrame": {"frameId": 1},
    "reverseContinue": {"threadId": 1},
    "runInTerminal": {"cwd": "/", "args": []},
    "setInstructionBreakpoints": {"breakpoints": []},
    "startDebugging": {"configuration": {}, "request": "attach"},
    "stepBack": {"threadId": 1},
    "terminateThreads": {"threadIds": []},
    "writeMemory": {"memoryReference": "1", "data": ""},
}
"""The requests of the protocol to which pydevd does not respond, with valid arguments."""


async def test_unsupported_requests_are_rejected():
    """Each is answered with an error, the job's stdout shows none of them, and the session continues."""
    async with job(CODE) as running:
        async with await DapClient.connect("127.0.0.1", int(await running.line()), within=DEADLINE) as client:
            await client.attach({}, within=DEADLINE)
            stopped = await client.wait_for_event("stopped", within=DEADLINE)
            for command, arguments in UNSUPPORTED.items():
                with pytest.raises(RequestFailed, match=f"debugpy does not support '{command}'"):
                    await client.request(command, arguments, within=DEADLINE)
            await client.request("continue", {"threadId": stopped["body"]["threadId"]}, within=DEADLINE)
        assert (0, ["it stops before this line"], "") == await running.finish()
