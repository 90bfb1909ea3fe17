"""Facts about the tag of a run: what is written and when. A recorder takes the place of the program that writes it."""

import asyncio
import contextlib
import importlib.util
import json
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from relay_agent.node.in_agent import run_tag
from relay_agent.node.in_agent.run_tag import RunTag
from relay_core.agent_api.announcement import State, TargetInfo
from relay_core.compat import timeout
from tests.support.machine.deadline import DEADLINE

RECORD = "import json, sys; open(sys.argv[1], 'a').write(json.dumps(sys.argv[2:]) + '\\n')"
FAIL = "import sys; print('RestException'); sys.exit(1)"


class Recorded(RunTag):
    """A tag whose program is a short piece of Python."""

    code = RECORD
    file: Path

    def _arguments(self, text: str) -> list[str]:
        return [sys.executable, "-c", self.code, str(self.file), *super()._arguments(text)[3:]]

    async def written(self, count: int) -> list[list[str]]:
        """Return what was written, once there are this many lines."""
        async with timeout(DEADLINE):
            while not self.file.exists() or self.file.read_text().count("\n") < count:
                await asyncio.sleep(0.02)
        return [json.loads(line) for line in self.file.read_text().splitlines()]


@contextlib.asynccontextmanager
async def running(tag: RunTag) -> AsyncIterator[None]:
    task = asyncio.create_task(tag.run())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


@pytest.fixture
def tag(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Recorded:
    monkeypatch.setattr(run_tag, "COALESCE", 0.0)
    found = Recorded("r1", "myhc")
    found.file = tmp_path / "record"
    return found


def waiting(*ports: int) -> list[TargetInfo]:
    return [TargetInfo(5678), *(TargetInfo(port, state=State.WAITING) for port in ports)]


async def test_only_changes_are_written(tag: Recorded) -> None:
    """The tag has the ports that wait; it is deleted when none does, and not written again without a change."""
    async with running(tag):
        tag.update(waiting())
        tag.update(waiting(5679, 5680))
        first = ["r1", "relay_debug_attach", "relay-client --hc myhc --ports 5679-5680"]
        assert [first] == await tag.written(1)
        tag.update(waiting(5680, 5679))
        tag.update(waiting())
        assert [first, ["r1", "relay_debug_attach"]] == await tag.written(2)


async def test_a_tag_that_is_set_is_deleted_at_the_end(tag: Recorded) -> None:
    """When the agent exits, another program deletes the tag; each node but the first has its own."""
    async with running(tag):
        tag.update(waiting(5679), node_rank=1)
        await tag.written(1)
    assert ["r1", "relay_debug_attach_node1"] == (await tag.written(2))[1]
    await asyncio.to_thread(os.wait)  # an agent exits before that program


async def test_end_during_a_deletion(tag: Recorded) -> None:
    """A tag whose deletion is interrupted by the end of the agent is deleted by another program."""
    tag.update(waiting(5679))
    async with running(tag):
        await tag.written(1)
        tag.code = f"import time; time.sleep({DEADLINE})"
        tag.update(waiting())
        async with timeout(DEADLINE):
            while tag._written:
                await asyncio.sleep(0.02)
        tag.code = RECORD
    assert ["r1", "relay_debug_attach"] == (await tag.written(2))[1]
    await asyncio.to_thread(os.wait)


async def test_a_failure_is_logged_once(tag: Recorded, caplog: pytest.LogCaptureFixture) -> None:
    """A server that refuses the tag costs one line with the type of the error."""
    tag.code = f"{RECORD}; {FAIL}"
    async with running(tag):
        for number, port in enumerate((5679, 5680, 5681), 1):
            tag.update(waiting(port))
            await tag.written(number)  # the failure before this one has been handled
    assert ["cannot set the tag 'relay_debug_attach' on the run: RestException"] == [
        record.getMessage() for record in caplog.records if record.name == run_tag.__name__
    ]


def test_many_ports() -> None:
    """A list of ports that is too long is replaced with the command that lists the targets."""
    tag = RunTag("r1", "myhc")
    tag.update([TargetInfo(port, state=State.CRASHED) for port in range(5000, 6000, 2)])
    assert "relay-client --hc myhc targets" == tag._wanted


@pytest.mark.parametrize("missing", ["MLFLOW_TRACKING_URI", "AZUREML_RUN_ID", "mlflow"])
def test_no_tag(missing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is none without a tracking server, without a run, and if mlflow is not installed."""
    environ = {"MLFLOW_TRACKING_URI": "https://contoso", "AZUREML_RUN_ID": "r1"}
    (tmp_path / "mlflow.py").touch()
    if missing != "mlflow":
        monkeypatch.syspath_prepend(tmp_path)
        assert RunTag.of_job(environ, "myhc") is not None
        del environ[missing]
    elif importlib.util.find_spec("mlflow") is not None:
        pytest.skip("mlflow is installed")
    assert RunTag.of_job(environ, "myhc") is None
