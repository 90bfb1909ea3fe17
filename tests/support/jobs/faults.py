"""Resources that a job lacks, and what becomes of the job, alone and under `relay-agent run`."""

import asyncio
import functools
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.support.jobs.running import access
from tests.support.machine import secrets
from tests.support.machine.deadline import DEADLINE
from tests.support.machine.programs import Finished, environment
from tests.support.network.relay import HC, LocalRelay

__all__ = ["FAULTS", "MEMORY", "STATUS", "Fault", "alone_and_observed", "can_mount"]

STATUS = 3
"""Of a job that nothing has harmed."""

SCRIPT = f"""
import time
for number in range(10):  # for as long as the agent needs to start, or not to
    print(number, flush=True)
    time.sleep(0.1)
raise SystemExit({STATUS})
"""
OWN_MOUNTS = ("unshare", "--mount")
DISK = 'mkdir -p "$DISK" && mount -t tmpfs -o {options} none "$DISK"'
FULL = f'{DISK.format(options="size=4k")} && {{ head -c 4096 /dev/zero > "$DISK/x" || true; }}'


@dataclass(frozen=True)
class Fault:
    """Something that a job and its agent lack."""

    name: str
    limits: str
    """Shell commands before the job; DISK is the path of a disk that they may mount."""
    logged: str = ""
    """Part of what is logged if no agent can be started; the job then waits for that."""
    needs_disk: bool = False
    """Whether it mounts a disk."""


FAULTS = (
    Fault("log on a full disk", "exec 2>/dev/full"),
    Fault("no file can grow", "ulimit -f 0"),
    Fault("TMPDIR on a full disk", f'{FULL} && export TMPDIR="$DISK"; unset RELAY_NODE_DIR', needs_disk=True),
    Fault(
        "node directory on a disk without room for the lock",
        f'{DISK.format(options="nr_inodes=2")} && export RELAY_NODE_DIR="$DISK/node"',
        logged="No space left on device. hint: ",
        needs_disk=True,
    ),
    Fault(
        "node directory on a disk without room for the socket",
        f'{DISK.format(options="nr_inodes=3")} && export RELAY_NODE_DIR="$DISK/node"',
        logged="No space left on device. hint: ",
        needs_disk=True,
    ),
    Fault("8 descriptors", "ulimit -n 8", logged="may open only 8 files. hint: raise the limit"),
    Fault("64 descriptors", "ulimit -n 64"),
)
MEMORY = tuple(Fault(f"{size} MiB of memory", f"ulimit -v {size * 1024}") for size in (32, 48, 64, 96, 128))
"""What is enough depends on the version of Python, so these are shown but not tested."""


@functools.cache
def can_mount() -> bool:
    """Whether this user may mount a disk; root in a container often may not."""
    if shutil.which("unshare") is None or os.geteuid() != 0:
        return False
    mount = (*OWN_MOUNTS, "mount", "-t", "tmpfs", "none", "/mnt")
    return not subprocess.run(mount, capture_output=True, check=False).returncode


async def alone_and_observed(fault: Fault, relay: LocalRelay, directory: Path) -> tuple[Finished, Finished]:
    """Run a job under a fault, without and with relay-agent."""
    script = directory / "train.py"
    script.write_text(SCRIPT)
    job = (sys.executable, str(script))
    options = ("--hc", HC, "--debug-ranks", "0" if fault.logged else "none")
    command = (sys.executable, "-m", "relay_agent", "run", *options, "--", *job)
    variables = access(relay, directory, "listen", DISK=str(directory / "disk"))
    return await _run(fault, job, variables), await _run(fault, command, variables)


async def _run(fault: Fault, command: tuple[str, ...], variables: dict[str, str]) -> Finished:
    own_mounts = OWN_MOUNTS if fault.needs_disk else ()
    process = await asyncio.create_subprocess_exec(
        *(*own_mounts, "bash", "-c", f'{fault.limits}; exec "$@"', "bash", *command),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=environment(**variables),
    )
    try:
        out, err = await asyncio.wait_for(process.communicate(), DEADLINE)
    finally:
        if process.returncode is None:
            process.kill()
    secrets.check(out.decode(), err.decode())
    assert process.returncode is not None
    return Finished(process.returncode, out.decode(), err.decode())
