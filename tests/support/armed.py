"""Jobs that start a debugger, and the adapters of their debuggers."""

import asyncio
import textwrap

import psutil

ARM = """\
import threading
from relay_agent.debuggee.debugger import debugger
port = debugger.arm()
"""


REARMED = """\
    import runpy
    def control():
        for _line in sys.stdin:
            debugger.release()
            print(debugger.arm(), flush=True)
    helper = threading.Thread(target=control, daemon=True)
    helper.pydev_do_not_trace = helper.is_pydev_daemon_thread = True
    helper.start()
    print(port, flush=True)
    runpy.run_path(sys.argv[1])
"""
"""Runs a script under a debugger, and starts another one for each line of stdin."""


def armed(code: str) -> str:
    """Return a program that has started a debugger on `port`."""
    return ARM + textwrap.dedent(code)


def adapter(port: int) -> int:
    """Return the process id of the adapter that listens on a port."""
    (pid,) = _listeners(port)
    return pid


async def until_adapter_has_ended(port: int) -> None:
    """Wait until no process listens on a port, without a connection, which the adapter would take for a debugger's."""
    while _listeners(port):
        await asyncio.sleep(0.05)


def _listeners(port: int) -> set[int]:
    sockets = [found for found in psutil.net_connections("tcp") if found.status == psutil.CONN_LISTEN]
    return {found.pid for found in sockets if found.pid and found.laddr and found.laddr.port == port}


def adapter_ports(port: int) -> list[int]:
    """Return all ports of the process that listens on one port."""
    return [found.laddr.port for found in psutil.Process(adapter(port)).net_connections("tcp") if not found.raddr]
