"""Facts about the program that is named as the user of a port."""

import asyncio
import re
import sys
from pathlib import Path

import pytest

from relay_client.ports.listening_editors import Listener, listener_on, program_on
from tests.support.machine.ports import free_port


async def test_the_program_of_a_port() -> None:
    """It is named with its module and its pid, but without its other arguments; a free port has none."""
    assert "" == program_on(free_port())
    server = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "http.server", "0", "--bind", "127.0.0.1", "--directory", "secret"),
        env={"PYTHONUNBUFFERED": "1"},
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert server.stdout is not None
        port = int(re.findall(rb"port (\d+)", await server.stdout.readline())[0])
        name = program_on(port)
        assert re.fullmatch(rf"python\S* -m http.server \(pid {server.pid}\)", name), name
    finally:
        server.kill()
        await server.wait()


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("debugpy/adapter.py", Listener.OWN),
        ("bin/debugpy-adapter", Listener.OWN),
        ("debugpy-notes/server.py", Listener.OTHER),
    ],
)
async def test_what_is_taken_for_a_listening_editor(tmp_path: Path, script: str, expected: Listener) -> None:
    """Only a program of the package debugpy is, not one in a folder with a similar name."""
    path = tmp_path / script
    path.parent.mkdir()
    path.write_text("import socket; s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1]); input()")
    server = await asyncio.create_subprocess_exec(
        *(sys.executable, "-u", str(path)), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    try:
        assert server.stdout is not None
        assert expected is listener_on(int(await server.stdout.readline()))
    finally:
        server.kill()
        await server.wait()
