"""Asks NCCL's RAS subsystem on this node for the state of the job's communicators.

NCCL listens on localhost:28028, or on the address in NCCL_RAS_ADDR, unless NCCL_RAS_ENABLE is 0. Each process answers
for the whole job. Protocol: lines of text in both directions. The answer to a status request ends when the connection
is closed.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping

from relay_agent.collectives.ras_status import parse_status
from relay_core.agent_api.ras import RasStatus
from relay_core.compat import TIMEOUT_ERRORS, timeout

__all__ = ["ask_ras"]

DEFAULT_ADDRESS = "localhost:28028"
ADDRESS_VARIABLE = "NCCL_RAS_ADDR"
RAS_TIMEOUT = 3.0
"""Timeout in seconds for the whole answer. NCCL waits for processes that do not respond, up to the timeout in the
request."""
REQUEST = b"SET FORMAT json\nTIMEOUT 2\nVERBOSE STATUS\n"
"""A version of NCCL that does not know the format ignores the first line or reports an error, and answers with text."""
MAX_ANSWER = 8 * 1024 * 1024
"""Maximum number of bytes in an answer; the JSON for one rank in a communicator takes 600 bytes."""


async def ask_ras(environ: Mapping[str, str]) -> RasStatus | None:
    """Return what RAS reports, or None if nothing is listening on its port.

    Args:
        environ: The environment of the job.
    """
    host, _, port = environ.get(ADDRESS_VARIABLE, DEFAULT_ADDRESS).rpartition(":")
    if not port.isdecimal() or environ.get("NCCL_RAS_ENABLE") == "0":
        return None
    answer = bytearray()
    try:
        async with timeout(RAS_TIMEOUT):
            reader, writer = await asyncio.open_connection(host.strip("[]") or "localhost", int(port))
            try:
                writer.write(REQUEST)
                while len(answer) < MAX_ANSWER and (data := await reader.read(65536)):
                    answer += data
            finally:
                writer.close()
                with contextlib.suppress(OSError):
                    await writer.wait_closed()
    except TIMEOUT_ERRORS:  # first, because some of them are OSErrors
        if not answer:
            return RasStatus(error=f"NCCL RAS did not answer within {RAS_TIMEOUT:g} s")
    except (OSError, OverflowError):
        if not answer:
            return None
    return parse_status(_without_acknowledgements(answer.decode(errors="replace")))


def _without_acknowledgements(answer: str) -> str:
    """Remove the lines that acknowledge or refuse the settings."""
    lines = answer.splitlines(keepends=True)
    while lines and (lines[0].strip() == "OK" or lines[0].startswith("ERROR")):
        del lines[0]
    return "".join(lines)
