"""Facts about the program that is named as the user of a port."""

import asyncio
import re
import sys

from relay_client.ports.listening_editors import program_on
from tests.support.ports import free_port


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
