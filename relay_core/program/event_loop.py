"""The event loop of a program: uvloop's if it is installed, otherwise asyncio's.

uvloop does in C what asyncio does in Python for each packet. It is installed with the extra `fast`. An agent runs in
the job's environment, to which nothing is added for this purpose.
"""

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import Coroutine
from typing import Any, TypeVar

__all__ = ["VARIABLE", "run"]

VARIABLE = "RELAY_EVENT_LOOP"
"""Environment variable; `asyncio` selects asyncio's event loop, for comparisons or to work around a fault in uvloop."""

_TLS_ERROR = "Fatal error on SSL protocol"
"""How uvloop reports an exception in its TLS code (uvloop/sslproto.pyx)."""
_CLOSED = "the handler is closed"
"""The end of uvloop's exception for an operation on a closed connection (uvloop/handles/handle.pyx)."""

T = TypeVar("T")


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end, like `asyncio.run`, in the fastest event loop of this environment.

    The garbage collector no longer examines the objects that were created before: about 40,000, which are never freed.
    A collection of all objects would otherwise stop the program for 20 ms every few seconds.
    """
    gc.freeze()
    if os.environ.get(VARIABLE) != "asyncio":
        try:
            import uvloop  # noqa: PLC0415 - an optional package, and only of programs that run an event loop
        except ImportError:  # also if it was built for another system
            pass
        else:
            return uvloop.run(_without_false_errors(main))
    return asyncio.run(main)


async def _without_false_errors(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine without reports from uvloop's TLS code about a TCP connection that has just been closed.

    At the end of a program, uvloop sometimes writes a last TLS message to such a connection, and reports the exception
    with a traceback. In any case, the owner of the connection is informed that it has been closed.
    """

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if context["message"] != _TLS_ERROR or not str(context.get("exception")).endswith(_CLOSED):
            loop.default_exception_handler(context)

    asyncio.get_running_loop().set_exception_handler(handle)
    return await main
