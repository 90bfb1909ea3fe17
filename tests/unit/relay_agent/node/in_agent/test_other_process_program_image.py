"""Facts about the name of the program with which a process has replaced itself."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from relay_agent.node.in_agent.other_process import ProgramImage

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="programs are read from /proc")

REPLACES_ITSELF = "import os, sys; input('started\\n'); os.execvp(sys.argv[1], sys.argv[1:])"


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (("sleep", "3600"), "sleep"),
        (("sh", "-c", "read line # data/images"), "sh"),
        ((sys.executable, "-c", "input() # data/images"), Path(sys.executable).name),
        ((sys.executable, "-u", "-m", "timeit", "-s", "input()"), "timeit"),
    ],
    ids=["program", "shell", "code", "module"],
)
def test_a_process_replaces_itself(command: tuple[str, ...], name: str) -> None:
    """Only Python's own arguments name what runs; before the exec, the process has no successor."""
    reader, writer = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-c", f"import os; os.set_inheritable({writer}, False); {REPLACES_ITSELF}", *command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        pass_fds=[writer],
    )
    os.close(writer)
    try:
        assert process.stdin is not None
        assert process.stdout is not None
        assert b"started\n" == process.stdout.readline()
        image = ProgramImage(process.pid)
        assert "" == asyncio.run(image.successor())
        process.stdin.write(b"\n")
        process.stdin.flush()
        assert b"" == os.read(reader, 1)  # the exec has closed the other end
        assert name == asyncio.run(image.successor())
    finally:
        process.kill()
        process.communicate()
        os.close(reader)
