"""Runs the scripts of this folder in Node.js, against a relay of the test."""

import asyncio
import contextlib
import json
import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.machine import secrets
from tests.support.machine.deadline import DEADLINE
from tests.support.network.relay import HC, LocalRelay

FOLDER = Path(__file__).parent
NODE = shutil.which("node")


def needs(package: str) -> list[pytest.MarkDecorator]:
    """Return the marks of tests that use a package of Microsoft."""
    return [
        pytest.mark.interop,
        pytest.mark.skipif(NODE is None, reason="Node is not installed"),
        pytest.mark.skipif(
            not (FOLDER / "node_modules" / package).is_dir(), reason=f"{package} is not installed: run make test"
        ),
    ]


@contextlib.asynccontextmanager
async def node(script: str, relay: LocalRelay, rule: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run a script of this folder with the relay's address and a rule's key in its environment."""
    key = {"listen": relay.listen_key, "send": relay.send_key}[rule]
    process = await asyncio.create_subprocess_exec(
        NODE,
        str(FOLDER / script),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env={
            "PATH": os.environ["PATH"],
            "NODE_EXTRA_CA_CERTS": str(relay.ca_file),
            "RELAY_HOST": "localhost",
            "RELAY_PORT": str(relay.server.port),
            "RELAY_HC": HC,
            "RELAY_KEY_NAME": rule,
            "RELAY_KEY": key,
        },
    )
    try:
        yield process
    finally:
        process.stdin.close()
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(process.wait(), 5)
        if process.returncode is None:
            process.kill()
            await process.wait()


async def event(process: asyncio.subprocess.Process) -> dict[str, object]:
    """Return the next JSON line that the script prints."""
    line = await asyncio.wait_for(process.stdout.readline(), DEADLINE)
    secrets.check(line.decode())
    return json.loads(line)
