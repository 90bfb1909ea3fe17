"""Facts about samples/openpai: the commands of its tasks, with the variables that OpenPAI sets, under a debugger."""

import asyncio
from pathlib import Path

import pytest

from tests.samples.kit import SAMPLES, agent_settings, breakpoint_hit, client_of, commands, environment, running
from tests.support.machine.ports import free_port

yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")

SAMPLE = SAMPLES / "openpai"
JOB = yaml.safe_load((SAMPLE / "job.yaml").read_text())
ROLE = JOB["taskRoles"]["train"]
SECRET = "<% $secrets.relay %>"
SCRIPT = SAMPLES / "container" / "train.py"


def task(index: int, port: int, folder: Path) -> dict[str, str]:
    """Return the variables that OpenPAI sets in a task of the role."""
    return {
        "PAI_JOB_NAME": f"alice~{JOB['name']}",
        "PAI_TASK_ROLE_LIST": "train",
        "PAI_TASK_ROLE_TASK_COUNT_train": str(ROLE["instances"]),
        "PAI_CURRENT_TASK_ROLE_NAME": "train",
        "PAI_CURRENT_TASK_ROLE_CURRENT_TASK_INDEX": str(index),
        "PAI_PORT_LIST_train_0_debug": str(port),
        "PAI_PORT_LIST_train_1_debug": str(free_port()),
        "RELAY_NODE_DIR": str(folder / f"node-{index}"),
    }


def test_the_page_has_the_command_of_the_job():
    """The command on the page is the last one of the job, and paipdb's with another module."""
    (words,) = commands(SAMPLE / "README.md")
    assert words == ROLE["commands"][-1].split()
    assert ["DEBUG_PORT_NAME=debug", "DEBUG_TIMEOUT=600", "python", "-m"] == words[:4]


def test_the_secret_is_in_no_command():
    """The connection string is a secret of the protocol, which one command puts into a variable."""
    assert ["relay"] == list(JOB["secrets"])
    assert 1 == sum(SECRET in command for command in ROLE["commands"])


@pytest.mark.e2e
async def test_debug_a_task(relay, tmp_path):
    """Task 0 waits for DEBUG_TIMEOUT on its reserved port, and stops at a breakpoint; task 1 has the next port."""
    port = free_port()
    settings = agent_settings(relay)
    script = "\n".join(ROLE["commands"]).replace(SECRET, settings.pop("RELAY_CONNECTION_STRING"))
    shell = ["bash", "-euc", script.replace("cd /app", f"cd {SCRIPT.parent}")]
    async with (
        client_of(relay, port),
        running(*shell, cwd=tmp_path, env=environment(**settings, **task(0, port, tmp_path))) as first,
        running(*shell, cwd=tmp_path, env=environment(**settings, **task(1, port, tmp_path))) as second,
    ):
        assert f"rank 1: a debugger can attach on port {port + 1} " in await second.line("a debugger can attach")
        async with breakpoint_hit(port, SCRIPT, "return (guess") as stop:
            assert ("improve", "3.0") == (await stop.function(), await stop.value("number"))
        assert [0, 0] == await asyncio.gather(first.finish(), second.finish())
        assert f"rank 0: waiting up to 600 s for a debugger on port {port} " in first.output
