"""Facts about jobs whose directory for the agent is shared with other nodes, or taken by another user."""

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from relay_agent.node.directory import HALF
from tests.support.jobs.running import running_job, until_registered
from tests.support.machine.other_user import OTHER_UID, needs_second_user
from tests.support.network.relay import LocalRelay

CONTAINER = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
"""Starts a program as process 1 of a PID namespace, as in a container that uses its node's network and host name."""


def can_contain() -> bool:
    """Return whether this user may create PID namespaces."""
    if shutil.which("unshare") is None:
        return False
    return not subprocess.run((*CONTAINER, "true"), capture_output=True, check=False).returncode


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """A job that runs until it is killed."""
    path = tmp_path / "train.py"
    path.write_text("import threading\nthreading.Event().wait()\n")
    return path


@pytest.mark.skipif(not can_contain(), reason="this user may not create PID namespaces")
async def test_containers_that_share_the_directory(relay: LocalRelay, script: Path) -> None:
    """Each container has its own agent, which can see its processes, so the ranks in both can be debugged."""
    launcher = (*CONTAINER, sys.executable)
    async with contextlib.AsyncExitStack() as jobs:
        for rank in "01":
            variables = {"RELAY_RANK": rank, "RELAY_WORLD_SIZE": "2"}
            await jobs.enter_async_context(running_job(relay, script, launcher=launcher, **variables))
        await until_registered(relay, script.parent, 2)
        one, other = agent_names(script.parent / "node")
        assert one[:HALF] != other[:HALF]
        assert one[HALF:] == other[HALF:]


def agent_names(directory: Path) -> list[str]:
    return [path.stem for path in directory.glob("*.lock")]


@pytest.fixture
def taken() -> Iterator[Path]:
    """The agent's default directory, which another user has created; not below `tmp_path`, a path too long for it."""
    with tempfile.TemporaryDirectory() as temporary:
        path = Path(temporary, f"relay-debug-{os.getuid()}")
        path.mkdir()
        os.chown(path, OTHER_UID, OTHER_UID)
        yield path
        assert not list(path.iterdir())


@needs_second_user
async def test_another_user_has_taken_the_name(relay: LocalRelay, script: Path, taken: Path) -> None:
    """The directory is then in the home directory, so any user's `mkdir` does not prevent debugging."""
    home = taken.parent / "home"
    variables = {"RELAY_NODE_DIR": "", "TMPDIR": str(taken.parent), "HOME": str(home), "XDG_RUNTIME_DIR": ""}
    async with running_job(relay, script, **variables):
        await until_registered(relay, script.parent, 1)
        assert [".lock", ".sock", ".stacks"] == suffixes(home / ".cache" / "relay-debug")


def suffixes(directory: Path) -> list[str]:
    return sorted(path.suffix for path in directory.iterdir())
