"""`relay-client tensorboard`: shows the runs of jobs in a local TensorBoard, or forwards a node's TensorBoard."""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from relay_client.cli import common
from relay_client.tensorboard.selection import DEFAULT_FILTERS, Selection, parse_selection
from relay_client.ui.text import exact_duration
from relay_core.errors import RelayDebugError, TimedOut
from relay_core.foreign import printable
from relay_core.value_parsers import named, parse_port

if TYPE_CHECKING:
    from relay_client.ports.local_port import LocalPort

logger = logging.getLogger(__name__)


def add_parser(commands: common.Commands[argparse.ArgumentParser]) -> None:
    """Add the command."""
    parser = common.add_command(
        commands,
        "tensorboard",
        run,
        summary="show runs in TensorBoard, or open a node's TensorBoard",
        description="Without --runs and --experiment, waits until an agent forwards the port, prints the URL, and "
        "forwards the port until you press Ctrl-C. With either option, copies the event files of the chosen runs to "
        "this machine, updates the copies while the jobs run, and shows them in one local TensorBoard. A running "
        "job serves the directories that its --debug-tensorboard option lists; the files of runs that have ended are "
        "downloaded through MLflow if it is installed on this machine.",
    )
    parser.add_argument(
        "--runs", default=None, metavar="LIST", help="runs to show: all, or a list of run ids, such as run_1,run_2"
    )
    parser.add_argument("--experiment", default=None, metavar="NAME", help="show all runs in this MLflow experiment")
    text = "show only runs in these states: Running, Completed, Failed, Canceled (default: %(default)s)"
    parser.add_argument("--filters", default=DEFAULT_FILTERS, metavar="LIST", help=text)
    parser.add_argument(
        "--logdir", default=None, metavar="DIR", help="keep the copies in this directory (default: a temporary one)"
    )
    text = "port to open; with --runs or --experiment, the port of the local TensorBoard (default: %(default)s)"
    parser.add_argument("--port", default="6006", metavar="[NODE/]PORT[:LOCAL]", help=text)
    common.add_quiet(parser)
    parser.set_defaults(keeps_running=True)
    text = "time to wait for an agent that forwards the port, such as 90s, 10m or 2h (default: %(default)s)"
    common.add_timeout(parser, text)


def run(arguments: argparse.Namespace) -> int:
    """Show the runs, or forward the port."""
    if arguments.runs or arguments.experiment:
        return _show_runs(arguments)
    from relay_client.ports.local_port import parse_forwards

    with named("--port"):
        (local,) = parse_forwards([arguments.port])

    return common.run_until_stopped(_forward_and_print_url(arguments, local), closing=common.CLOSING_PORTS)


def _show_runs(arguments: argparse.Namespace) -> int:
    selection = parse_selection(arguments.runs, arguments.experiment, arguments.filters)
    with named("--port"):
        port = parse_port(arguments.port)
    with contextlib.ExitStack() as at_end:
        folder = arguments.logdir or at_end.enter_context(tempfile.TemporaryDirectory(prefix="relay-tensorboard-"))
        directory = Path(folder).absolute()
        directory.mkdir(parents=True, exist_ok=True)
        showing = _show(arguments, selection, directory, port)
        return common.run_until_stopped(showing, closing="closing the tunnels and stopping TensorBoard")


async def _show(arguments: argparse.Namespace, selection: Selection, directory: Path, port: int) -> None:
    """Copy the files of the chosen runs to a directory, and run TensorBoard on a port, until cancelled.

    Raises:
        ConfigurationError: TensorBoard is missing, or MLflow is missing and an experiment is chosen.
        RelayDebugError: TensorBoard has exited, or the tracking server cannot be queried.
    """
    from relay_client.tensorboard.server import LiveFiles, running_tensorboard
    from relay_core.net.tasks import first_completed

    tunnels = await common.make_tunnels(arguments)
    known = await _download(selection, directory)
    includes = known.__contains__ if selection.experiment else selection.includes
    live = LiveFiles(tunnels, directory, includes)
    async with tunnels, running_tensorboard(directory, port) as process:
        print(f"http://127.0.0.1:{port}/", flush=True)
        if not selection.has_running:
            await process.wait()
        else:
            tunnels.keep_searching()
            await first_completed(live.copy_always(), process.wait())
    raise RelayDebugError("TensorBoard has exited")


async def _download(selection: Selection, directory: Path) -> set[str]:
    """Download the files of the chosen runs that have ended, and return the ids of all chosen runs."""
    import asyncio

    from relay_client.tensorboard.server import download_ended, find_runs, is_available

    if not selection.experiment and not is_available(os.environ):
        logger.info("only running jobs are shown: mlflow is not installed, or MLFLOW_TRACKING_URI is not set")
        return set()
    runs = await asyncio.to_thread(find_runs, selection)
    for run, name, status in runs:
        if status in selection.ended:
            count = await asyncio.to_thread(download_ended, run, name, directory)
            logger.info(
                "run %s (%s): downloaded %d event file%s",
                printable(name),
                printable(run),
                count,
                "s" * (count != 1),
            )
    return {run for run, _, _ in runs}


async def _forward_and_print_url(arguments: argparse.Namespace, local: LocalPort) -> None:
    """Forward a port until cancelled; print its URL once an agent serves it.

    Args:
        arguments: The parsed command line, with the time to wait for the agent.
        local: The local port and its destination.

    Raises:
        TimedOut: no agent served the port in time.
        LocalPortInUse: the local port cannot be opened.
        RelayDebugError: the relay or the credentials are unusable.
    """
    import asyncio

    from relay_client.ports.forwarder import LOCAL_HOST, Forwarder
    from relay_core.net.tasks import first_completed

    tunnels, within, wanted = await common.make_tunnels(arguments), arguments.timeout, local.destination
    reason: RelayDebugError | None = None
    forwarder = Forwarder(tunnels, [local])

    def show_waiting(error: RelayDebugError) -> None:
        nonlocal reason
        reason = tunnels.unreachable_error(wanted, error)
        logger.warning("waiting: %s", reason)

    async def print_url() -> None:
        async with forwarder:
            found = tunnels.search.wait_for(lambda: tunnels.agent_for(wanted), show_waiting)
            if await first_completed(found, timeout=within) is None:
                why, hint = (reason.sentence, reason.hint) if reason else ("the search for agents has not finished", "")
                raise TimedOut(f"{wanted} was not available within {exact_duration(within)}: {why}", hint=hint)
            tunnels.keep_searching()
            print(f"http://{LOCAL_HOST}:{local.port}/", flush=True)
            await asyncio.Event().wait()

    await common.run_controlled("tensorboard", tunnels, forwarder, print_url())
