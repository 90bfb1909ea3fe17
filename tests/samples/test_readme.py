"""Facts about README's way from a script of one's own to a breakpoint: its commands run here, as they stand there.

Only what is installed is left out, and the ports become free ones, because other tests run at the same time.
"""

import re
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from tests.samples.kit import ROOT, Running, breakpoint_hit, environment, free_ports, running
from tests.support.machine.ports import free_port

TITLE = "## Debug your own script\n"
PAGE = (ROOT / "README.md").read_text().partition(TITLE)[2].partition("\n## ")[0]
FENCES = re.findall(r"^```(\w+)\n((?:.*\n)*?)```$", PAGE, re.MULTILINE)
RELAY, JOB, LAPTOP = [text for language, text in FENCES if language == "sh"]
(BEGINNING,) = [text for language, text in FENCES if language == "python"]
PROJECT = "my-project"
"""The folder of the script, in the home directory."""
SCRIPT = """
def train(steps):
    total = sum(range(steps))
    return total

print(f"trained {train(4)}")
"""


@pytest.fixture
def terminal(tmp_path):
    """What opens a terminal of the reader in the folder of the script."""

    def open_terminal(block: str) -> AbstractAsyncContextManager[Running]:
        without_pip = re.sub(r"(&& )?pip install .*$", "", block, flags=re.MULTILINE)
        return running("bash", "-euc", without_pip, cwd=tmp_path / PROJECT, env=environment(HOME=str(tmp_path)))

    for folder in ("relay-debug", PROJECT):
        (tmp_path / folder).mkdir()

    return open_terminal


@pytest.mark.e2e
async def test_from_a_script_to_a_breakpoint(terminal, tmp_path: Path) -> None:
    """A relay, a script with two more lines and relay-client, set up as the page describes, meet at a breakpoint."""
    script = tmp_path / PROJECT / "train.py"
    script.write_text(BEGINNING + SCRIPT)
    relay_port, port = free_port(), free_ports(1)
    start_relay = RELAY.replace("--hc myhc", f"--hc myhc --port {relay_port}")
    async with terminal(start_relay) as relay:
        await relay.line("relay-server: ready")
        async with terminal(LAPTOP.replace("5678", str(port))) as client:
            await client.line("relay-client: ready on ")
            async with terminal(JOB.replace("5678", str(port))) as job:
                async with breakpoint_hit(port, script, "return total") as stop:
                    assert ("train", "6") == (await stop.function(), await stop.value("total"))
                assert 0 == await job.finish()
                assert "trained 6" in job.output
