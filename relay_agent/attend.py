"""The agent of one debugged process: started by it, told what to do on stdin, gone when it is gone.

stdin carries one JSON line (`AgentOrder`) and then stays open for as long as the process lives. Its end means that the
process is gone; but forked children hold copies of the pipe, so the process itself is watched as well. stdout carries
JSON lines back: `{"state": "listening"}`, and `{"state": "failed", "sentence", "hint", "exit_code"}` at most once.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys

from relay_agent.agent import Agent
from relay_agent.agent_order import AgentOrder
from relay_agent.target import Target
from relay_core.auth import AccessSettings, find_access
from relay_core.errors import RelayDebugError
from relay_core.net.tasks import TaskSet
from relay_core.net.tls import client_tls

__all__ = ["attend"]

PID_POLL_INTERVAL = 1.0
"""Seconds between looks at the process where the system cannot report its end (no pidfd)."""


async def attend() -> None:
    """Serve the process that started this one until it has ended.

    Raises:
        RelayDebugError: the agent cannot do its work; stdout carries the same.
    """
    stdin = await _open_stdin()
    try:
        line = await stdin.readline()
        if not line:
            return  # the process ended, or could not start its debugger, before it needed an agent
        order = AgentOrder.parse(line)
        async with TaskSet() as tasks:
            serving = tasks.spawn(_serve(order), name="agent")
            gone = tasks.spawn(_until_gone(stdin, order.pid), name="watch the job")
            await asyncio.wait({serving, gone}, return_when=asyncio.FIRST_COMPLETED)
            if serving.done():
                await serving
    except RelayDebugError as error:
        _report(state="failed", sentence=error.sentence, hint=error.hint, exit_code=error.exit_code)
        raise


async def _serve(order: AgentOrder) -> None:
    """Find credentials, in Key Vault if need be, and serve the process's debugger."""
    tls = client_tls(order.ca_file)
    settings = AccessSettings(
        hc=order.hc,
        connection_string=order.connection_string,
        connection_string_file=order.connection_string_file,
        connection_string_secret=order.connection_string_secret,
        key_vault=order.key_vault,
        namespace=order.namespace,
        identity=order.identity,
        tunnel_key_file=order.tunnel_key_file,
        tunnel_key_secret=order.tunnel_key_secret,
    )
    access = await find_access(settings, side="agent", tls=tls)
    target = Target(order.logical_port, order.target_port, dap_only=True)
    agent = Agent(
        access.endpoint,
        access.credential,
        {target.logical_port: target},
        tunnel_key=access.tunnel_key,
        tls=tls,
        on_listening=lambda: _report(state="listening"),
    )
    await agent.run()


def _report(**fields: object) -> None:
    """Tell the debugged process; it may not listen any more."""
    try:
        sys.stdout.write(json.dumps(fields) + "\n")
        sys.stdout.flush()
    except OSError:
        # The process has closed its end or is gone; the interpreter must not fail at exit over the same pipe.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


async def _open_stdin() -> asyncio.StreamReader:
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    return reader


async def _until_gone(stdin: asyncio.StreamReader, pid: int) -> None:
    """Return when the pipe has ended or the process has."""
    async with TaskSet() as tasks:
        await asyncio.wait(
            {tasks.spawn(stdin.read(), name="stdin"), tasks.spawn(_until_exit(pid), name="pid")},
            return_when=asyncio.FIRST_COMPLETED,
        )


async def _until_exit(pid: int) -> None:
    """Return when the process has ended, at once where pidfd exists (Linux), otherwise within a second."""
    if not hasattr(os, "pidfd_open"):
        while _is_parent(pid):  # noqa: ASYNC110 - the system gives no event
            await asyncio.sleep(PID_POLL_INTERVAL)
        return
    try:
        descriptor = os.pidfd_open(pid)
    except OSError:  # it has ended already
        return
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    loop.add_reader(descriptor, ended.set)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


def _is_parent(pid: int) -> bool:
    """Whether the process that started this one still lives: an orphan gets another parent."""
    return os.getppid() == pid
