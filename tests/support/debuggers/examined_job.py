"""A program that a real debugger has stopped, and that answers as it does to relay-client in the meantime."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path

from relay_client.dap import DapClient
from tests.support.editors.stopped import Stopped
from tests.support.jobs.processes import Job, job
from tests.support.machine.deadline import DEADLINE

__all__ = ["Examined", "stopped_at"]

CODE = """
    import json, runpy, threading
    from relay_agent.debuggee.debugger import debugger
    from relay_agent.stacks.evaluation import evaluate
    from relay_agent.stacks.in_process import collect
    from relay_core.agent_api.evaluation import Evaluate

    class Answering(threading.Thread):
        pydev_do_not_trace = is_pydev_daemon_thread = True

        def run(self):
            for line in sys.stdin:
                value = evaluate(Evaluate(line.strip(), seconds=60))
                stopped = [thread.name for thread in collect() if thread.stopped]
                print(json.dumps([value.text or value.error, value.place, stopped]), flush=True)

    print(debugger.arm(), flush=True)
    debugger.wait_for_attach(3600, threading.Event())
    Answering(daemon=True).start()
    runpy.run_path(sys.argv[1], run_name="__main__")
"""


class Examined(Stopped):
    """The program, and its debugger."""

    def __init__(self, program: Job, client: DapClient) -> None:
        super().__init__(client)
        self.program = program

    async def ask(self, expression: str) -> tuple[str, str, list[str]]:
        """Return the value or the error, the place, and the names of the threads that have stopped on their own."""
        assert self.program.process.stdin is not None
        self.program.process.stdin.write(f"{expression}\n".encode())
        return tuple(json.loads(await self.program.line()))

    async def expand(self, expression: str) -> dict[str, str]:
        """Return the attributes or elements that an editor shows for an expression."""
        reference = (await self.evaluate(expression))["variablesReference"]
        found = await self.client.request("variables", {"variablesReference": reference}, within=DEADLINE)
        return {variable["name"]: variable["value"] for variable in found["variables"]}


@contextlib.asynccontextmanager
async def stopped_at(script: Path, *lines: int) -> AsyncIterator[Examined]:
    """Run a script to the first of its breakpoints; it continues at the end of the block."""
    async with (
        job(CODE, str(script)) as running,
        await DapClient.connect("127.0.0.1", int(await running.line()), within=DEADLINE) as client,
    ):
        await client.attach({str(script): [{"line": line} for line in lines]}, justMyCode=False, within=DEADLINE)
        examined = Examined(running, client)
        await examined.until_stopped()
        yield examined
        await client.request("disconnect", {"terminateDebuggee": False}, within=DEADLINE)
