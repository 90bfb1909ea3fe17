"""Distributed training with four ranks through a relay on this machine, debugged with your editor or by this script.

    python run.py                     every rank waits for your debugger: start `all ranks` with F5
    python run.py --debug-ranks 3     only rank 3 waits; the others wait for rank 3, and can be debugged at any time
    python run.py --check             attach to every rank, and print where it stops and some variables

This script requires torch, and runs `relay-agent run ... -- torchrun ... train.py`.
"""

import argparse
import asyncio
import contextlib
import importlib.util
import subprocess
import sys
from pathlib import Path

from relay_client.dap import DapClient
from relay_client.demo.environment import Sample
from relay_core.errors import RelayDebugError
from relay_core.net.tasks import first_completed
from relay_core.program.console import print_error

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parent / "shared"))
from local_relay import HC, behind_relay, exit_status  # noqa: E402

RANKS = range(4)
BREAKPOINT = "dist.all_reduce(gradient)"
CONDITION = "step == 3"
PATIENCE = 90.0
"""Seconds that four processes may take to import torch, which is slow under a debugger before Python 3.12."""


def main() -> int:
    """Run the job, and return its exit status, or 1 if `--check` failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--debug-ranks", default="all", metavar="LIST", help="ranks that wait (default: %(default)s)")
    parser.add_argument("--port", type=int, default=5678, help="logical port of rank 0 (default: %(default)s)")
    parser.add_argument("--all-ranks", type=int, default=5600, help="local port of all ranks (default: %(default)s)")
    parser.add_argument("--check", action="store_true", help="debug the job without an editor")
    options = parser.parse_args()
    if importlib.util.find_spec("torch") is None:
        parser.error("torch is missing: pip install torch")
    first, last = options.port, options.port + RANKS[-1]
    agent = ["relay-agent", "run", "--hc", HC, "--port", str(first), "--debug-ranks", options.debug_ranks]
    torchrun = ["torchrun", "--standalone", "--nproc-per-node", str(len(RANKS)), "train.py"]
    client = ["--all-ranks", str(options.all_ranks)]
    with behind_relay([*agent, "--", *torchrun], ports=f"{first}-{last}", client=client, cwd=HERE) as job:
        if options.check:
            try:
                asyncio.run(check_until_ended(job, first))
            except RelayDebugError as error:
                print_error("run.py", error)
                return exit_status(job) if job.poll() else 1
        return exit_status(job)


async def check_until_ended(job: subprocess.Popen[bytes], first_port: int) -> None:
    """Check a job as `check` does.

    Raises:
        RelayDebugError: as in `check`, or the job has ended before the check was complete.
    """
    await first_completed(check(first_port), ended(job))


async def ended(job: subprocess.Popen[bytes]) -> None:
    """Raise RelayDebugError when a job has ended."""
    while job.poll() is None:  # noqa: ASYNC110 - a process without a loop has no event
        await asyncio.sleep(0.1)
    raise RelayDebugError(f"the job ended with status {exit_status(job)} before the check was complete")


async def check(first_port: int) -> None:
    """Attach to all ranks, print one line about each rank, and detach.

    Raises:
        RelayDebugError: a rank cannot be reached, or does not stop.
    """
    async with contextlib.AsyncExitStack() as stack:
        clients = [
            await stack.enter_async_context(await DapClient.connect("127.0.0.1", first_port + rank)) for rank in RANKS
        ]
        await asyncio.gather(*map(attach, clients))
        for client in clients:
            print(await place_of(client), flush=True)
        for client in clients:
            await client.request("disconnect", {"terminateDebuggee": False})


async def attach(client: DapClient) -> None:
    """Attach like an editor, with a conditional breakpoint at the collective operation."""
    sample = Sample(HERE)
    wanted = {str(sample.script): [{"line": sample.line_of(BREAKPOINT), "condition": CONDITION}]}
    mapping = {"localRoot": str(HERE), "remoteRoot": "."}
    await client.attach(wanted, within=PATIENCE, pathMappings=[mapping], justMyCode=False)


async def place_of(client: DapClient) -> str:
    """Wait until a rank stops at the breakpoint; return its position and some variables as one line."""
    stopped = await client.wait_for_event("stopped", within=PATIENCE)
    where = {"threadId": stopped["body"]["threadId"], "levels": 1}
    stack = await client.request("stackTrace", where, within=PATIENCE)
    top = stack["stackFrames"][0]
    values = {}
    for name in ("rank", "step", "loss"):
        arguments = {"expression": name, "frameId": top["id"], "context": "watch"}
        values[name] = (await client.request("evaluate", arguments, within=PATIENCE))["result"]
    place = f"{top['name']}, {Path(top['source']['path']).name}:{top['line']}"
    return f"rank {values['rank']} stopped in {place}: step = {values['step']}, loss = {values['loss']}"


if __name__ == "__main__":
    sys.exit(main())
