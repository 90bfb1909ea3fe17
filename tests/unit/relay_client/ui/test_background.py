"""Facts about the thread that writes log lines."""

from tests.support.jobs.processes import run_job

BLOCKED = """
import logging, os
from relay_client.ui import background
from relay_core.program.console import configure_logging

reader, writer = os.pipe()
filler = os.open(f"/proc/self/fd/{writer}", os.O_WRONLY | os.O_NONBLOCK)
full = os.write(filler, b"." * 1000000)
sys.stderr, own = open(writer, "w"), sys.stderr
configure_logging("relay-client")
background.FLUSH_SECONDS = 0.01
with background.stderr_in_background():
    for number in range(background.MAX_TEXTS + 50):
        logging.getLogger("relay_client").info("%d", number)
print("left")
os.read(reader, full)
read = ""
while "not written" not in read:
    read += os.read(reader, 65536).decode()
print(read.splitlines()[0], read.splitlines()[-1], sep="\\n")
sys.stderr = own
"""


async def test_a_pipe_that_nobody_reads() -> None:
    """The program continues and exits; lines that could not be kept are counted once there is space again."""
    status, lines, stderr = await run_job(BLOCKED)
    assert (0, ["left", "relay-client: 0"], "") == (status, lines[:2], stderr)
    assert lines[2] in {f"{count} lines were not written because the terminal took no output" for count in (49, 50)}


async def test_lines_are_written_before_the_block_ends() -> None:
    """Log lines and other text on stderr appear in their order; later, the log is written as before."""
    code = """
import logging
from relay_client.ui.background import stderr_in_background
from relay_core.program.console import configure_logging

configure_logging("relay-client")
log = logging.getLogger("relay_client").info
with stderr_in_background():
    log("first")
    print("second", file=sys.stderr)
log("third")
"""
    assert (0, [], "relay-client: first\nsecond\nrelay-client: third\n") == await run_job(code)
