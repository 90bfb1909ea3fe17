"""Copies of the event files of runs, and one TensorBoard on this machine that shows them."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import logging
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn, cast

from relay_client.agents.requests import send_request
from relay_client.agents.tunnels import Tunnels
from relay_client.tensorboard.checked import LISTENING
from relay_client.tensorboard.selection import Selection, folder_name
from relay_core.agent_api.announcement import AgentInfo
from relay_core.agent_api.event_files import (
    EventData,
    EventDataRequest,
    EventFile,
    EventFiles,
    EventFilesRequest,
    is_event_file,
)
from relay_core.compat import TIMEOUT_ERRORS, timeout
from relay_core.errors import ConfigurationError, ConnectionLost, RelayDebugError
from relay_core.net.tasks import end_process
from relay_core.records import parse
from relay_core.socket_tables import shared_tables

logger = logging.getLogger(__name__)


# Event files for TensorBoard: those of running jobs as they grow, and those of ended runs from their artifacts.

INTERVAL = 2.0
"""Seconds between two checks of a node's files; TensorBoard reloads the copies every three seconds."""
WITHIN = 60.0
"""Seconds to wait for one response; a tunnel that was cut is resumed within this time."""
MAX_BYTES = 2 * 1024**3
"""Maximum number of bytes in one copy, so that a node cannot fill this machine's disk with one file."""


class LiveFiles:
    """The copies of the event files of running jobs.

    Args:
        tunnels: The client's tunnels.
        directory: The directory for the copies, with a folder for each run and node.
        includes: Returns whether the job with a given run id is chosen.
    """

    def __init__(self, tunnels: Tunnels, directory: Path, includes: Callable[[str], bool]) -> None:
        self._tunnels = tunnels
        self._directory = directory
        self._includes = includes
        self._reported: set[str] = set()

    async def copy_always(self) -> NoReturn:
        """Copy new data until cancelled."""
        while True:
            await self.copy_once()
            await asyncio.sleep(INTERVAL)

    async def copy_once(self) -> None:
        """Copy new data from all nodes; a node that cannot answer does not delay other nodes."""
        chosen = [agent for agent in self._tunnels.roster if self._includes(agent.run)]
        await asyncio.gather(*map(self._copy_node, chosen))

    async def _copy_node(self, agent: AgentInfo) -> None:
        folder = self._directory / folder_name(agent.run or agent.host) / folder_name(agent.host)
        try:
            response = await send_request(self._tunnels, agent.id, EventFilesRequest(), within=WITHIN)
            for file in parse(EventFiles, response).files:
                await self._copy_file(agent, file, folder / file.path)
        except ConnectionLost as lost:
            logger.debug("cannot fetch event files from %s: %s", agent.name, lost)
        except (RelayDebugError, OSError) as error:
            if agent.id not in self._reported:
                self._reported.add(agent.id)
                logger.warning("cannot fetch event files from %s: %s", agent.name, error)

    async def _copy_file(self, agent: AgentInfo, file: EventFile, copy: Path) -> None:
        """Append the new bytes of a file to its copy; a file that has become shorter is copied again."""
        size = _size(copy)
        if file.size < size:
            size = 0
        while size < min(file.size, MAX_BYTES):
            request = EventDataRequest(file.path, size)
            data = parse(EventData, await send_request(self._tunnels, agent.id, request, within=WITHIN)).data
            if not data:
                return
            _write(copy, data, size)
            size += len(data)


def _size(copy: Path) -> int:
    return copy.stat().st_size if copy.exists() else 0


def _write(copy: Path, data: bytes, offset: int) -> None:
    copy.parent.mkdir(parents=True, exist_ok=True)
    with copy.open("ab" if offset else "wb") as opened:
        opened.write(data)


# Downloads event files from the artifacts of runs that have ended, through MLflow's client.
#
# MLflow reads the address and the credentials of its server from the environment; Azure ML requires the package
# azureml-mlflow and the tracking URI of the workspace.

MAX_RUNS = 100
"""Maximum number of runs from an experiment, starting with the latest; TensorBoard becomes slow with more runs."""
MAX_DEPTH = 8


def is_available(environ: Mapping[str, str]) -> bool:
    """Whether MLflow is installed and has a tracking server."""
    return importlib.util.find_spec("mlflow") is not None and bool(environ.get("MLFLOW_TRACKING_URI"))


def find_runs(selection: Selection) -> list[tuple[str, str, str]]:
    """Return the id, name and status of the chosen runs that the tracking server knows; the call blocks.

    Raises:
        ConfigurationError: the experiment does not exist.
        RelayDebugError: the server cannot be queried.
    """
    client = _client()
    with _explained("the runs cannot be listed"):
        if selection.runs:
            found = [run for name in sorted(selection.runs) if (run := _get_run(client, name)) is not None]
        else:
            found = client.search_runs(_experiments(client, selection.experiment), max_results=MAX_RUNS)
    runs = ((run.info.run_id, run.info.run_name or "", run.info.status) for run in found)
    return [run for run in runs if run[2] in selection.statuses]


def download_ended(run: str, name: str, directory: Path) -> int:
    """Download the event files of a run, and return their number; the call blocks.

    Raises:
        RelayDebugError: the server cannot be queried.
    """
    client = _client()
    folder = directory / "_".join(map(folder_name, [name, run] if name else [run]))
    with _explained(f"the files of run {run} cannot be downloaded"):
        paths = list(_event_files(client, run, None))
        for path in paths:
            parent = folder.joinpath(*map(folder_name, path.split("/")[:-1]))  # MLflow drops a file's folders
            parent.mkdir(parents=True, exist_ok=True)
            client.download_artifacts(run, path, str(parent))
    return len(paths)


def _event_files(client: Any, run: str, path: str | None, depth: int = 0) -> Iterator[str]:
    for item in client.list_artifacts(run, path):
        if item.is_dir and depth < MAX_DEPTH:
            yield from _event_files(client, run, item.path, depth + 1)
        elif is_event_file(item.path.rpartition("/")[2]) and ".." not in item.path.split("/"):
            yield item.path


def _experiments(client: Any, name: str) -> list[str]:
    if not name:
        return [experiment.experiment_id for experiment in client.search_experiments()]
    found = client.get_experiment_by_name(name)
    if found is None:
        raise ConfigurationError(f"the tracking server has no experiment '{name}'", hint="check its name")
    return [found.experiment_id]


def _get_run(client: Any, run: str) -> Any:
    """Return a run, or None if the server does not know it, for example because the job is on another platform."""
    from mlflow.exceptions import MlflowException  # noqa: PLC0415 - takes seconds

    try:
        return client.get_run(run)
    except MlflowException as error:
        if error.error_code == "RESOURCE_DOES_NOT_EXIST":
            return None
        raise


def _client() -> Any:
    if importlib.util.find_spec("mlflow") is None:
        raise ConfigurationError(
            "mlflow is not installed", hint="run: pip install mlflow (for Azure ML, also azureml-mlflow)"
        )
    os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
    from mlflow import MlflowClient  # noqa: PLC0415 - takes seconds, and only runs that have ended need it

    return MlflowClient()


@contextlib.contextmanager
def _explained(sentence: str) -> Iterator[None]:
    """Replace an error from MLflow, whose text may contain transmitted data, with one that names only its type."""
    try:
        yield
    except RelayDebugError:
        raise
    except Exception as error:  # noqa: BLE001 - MLflow raises those of many libraries
        hint = "check MLFLOW_TRACKING_URI, and make sure that you are signed in"
        raise RelayDebugError(f"{sentence}: {type(error).__name__}", hint=hint) from None


# Runs TensorBoard on this machine as a child process.

START_TIMEOUT = 120.0
"""Seconds to wait until TensorBoard's port is open; importing tensorflow, if installed, takes half a minute."""
END_TIMEOUT = 5.0


@contextlib.asynccontextmanager
async def running_tensorboard(directory: Path, port: int) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run TensorBoard for a directory; the block begins when TensorBoard's port is open.

    Raises:
        ConfigurationError: TensorBoard is not installed.
        RelayDebugError: TensorBoard did not start.
    """
    if importlib.util.find_spec("tensorboard") is None:
        raise ConfigurationError("tensorboard is not installed", hint="run: pip install tensorboard")
    if not shared_tables().shows_owners:
        logger.warning("this system does not reveal which user is connecting, so any user can read this TensorBoard")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "relay_client.tensorboard.checked", "--logdir", str(directory)),
        *("--port", str(port), "--reload_interval", "3"),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    try:
        async with timeout(START_TIMEOUT):
            await _until_open(process, port)
        yield process
    except TIMEOUT_ERRORS:
        raise RelayDebugError(
            "TensorBoard did not start in time", hint="run 'tensorboard --logdir .' to see why"
        ) from None
    finally:
        await end_process(process, within=END_TIMEOUT)


async def _until_open(process: asyncio.subprocess.Process, port: int) -> None:
    while line := await cast("asyncio.StreamReader", process.stdout).readline():
        if line == LISTENING:
            return
    raise RelayDebugError(
        f"TensorBoard did not start (status {await process.wait()})",
        hint=f"use --port to choose another port; port {port} may be in use",
    )
