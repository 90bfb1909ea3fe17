"""Runs TensorBoard on this machine as a child process."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

from relay_core.compat import TIMEOUT_ERRORS, timeout
from relay_core.errors import ConfigurationError, RelayDebugError

__all__ = ["running_tensorboard"]

HOST = "127.0.0.1"
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
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tensorboard.main", "--logdir", str(directory)),
        *("--host", HOST, "--port", str(port), "--reload_interval", "3"),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
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
        await _end(process)


async def _until_open(process: asyncio.subprocess.Process, port: int) -> None:
    while process.returncode is None:
        try:
            _, writer = await asyncio.open_connection(HOST, port)
        except OSError:
            await asyncio.sleep(0.2)
        else:
            writer.close()
            return
    raise RelayDebugError(
        f"TensorBoard did not start (status {process.returncode})",
        hint=f"use --port to choose another port; port {port} may be in use",
    )


async def _end(process: asyncio.subprocess.Process) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL if hasattr(signal, "SIGKILL") else signal.SIGTERM):
        if process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError, *TIMEOUT_ERRORS):
            process.send_signal(number)
            async with timeout(END_TIMEOUT):
                await process.wait()
