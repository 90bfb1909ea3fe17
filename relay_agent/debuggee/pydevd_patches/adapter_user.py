"""Patch that makes pydevd check whose program has accepted its connection to debugpy's adapter.

After the adapter has exited, any user of the machine can listen on its port, and the token with which the adapter
authenticates itself is in command lines that every user can read. The check takes place before pydevd reads a byte.

If a child process that the debugger follows does not reach the adapter, the child runs without a debugger; pydevd would
terminate it.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any

from relay_agent.debuggee.pydevd_patches.child_processes import loaded_pydevds
from relay_agent.job.gevent_originals import socket, time
from relay_agent.job.stderr import write_line
from relay_core.socket_tables import OwnersNotShown, SocketTables, own_user

ACCEPT_TIMEOUT = 10.0
"""Timeout in seconds for a program to accept a connection, if it is unknown whose program can do so; pydevd's timeout
for the connection itself has the same value."""
LISTENER_AFTER = 0.05
"""Seconds after which the listener of the port is looked up. An adapter usually accepts at once, and for a listener,
all sockets of the machine have to be read."""
POLL_INTERVAL = 0.005
ESTABLISHED = 1
"""TCP_ESTABLISHED in the kernel's `enum` of states (include/net/tcp_states.h), the first byte of TCP_INFO."""


def install(*, is_child: bool) -> None:
    """Patch `pydevd.start_client` in this process and its forked children.

    Args:
        is_child: Whether the debugger has followed a parent into this process.
    """
    job = 0 if is_child else os.getpid()
    for each in loaded_pydevds():
        each.start_client = functools.partial(_start_client, each.start_client, job)


def _start_client(connect: Callable[[str, int], Any], job: int, host: str, port: int) -> Any:
    """Connect to the adapter.

    Args:
        connect: pydevd's function.
        job: The process that has started the adapter itself; there, the errors of pydevd's function are raised.
        host: The adapter's address.
        port: Its port.
    """
    try:
        connection = connect(host, port)
    except OSError as error:
        if os.getpid() == job:
            raise
        return _ended(error)
    try:
        _until_accepted(connection)
    except OSError as error:
        connection.close()
        return _ended(error)
    return connection


def _ended(error: OSError) -> Any:
    """Return a connection that has ended, so that pydevd ends the debugger and the program runs; log the reason."""
    reason = error.strerror or error
    write_line(f"process {os.getpid()}: cannot connect to debugpy's adapter: {reason}; continuing without a debugger")
    connection, other_end = socket.socketpair()
    other_end.close()
    return connection


def _until_accepted(connection: Any) -> None:
    """Wait until it is certain that a process of this user has accepted a connection to this machine, or will.

    Raises:
        OSError: another user's program has accepted it, nobody has, or that cannot be determined.
    """
    own, peer = connection.getsockname()[:2], connection.getpeername()[:2]
    if own[0] != peer[0]:  # the adapter is on another machine
        return
    started = time.monotonic()
    with SocketTables() as tables:  # closed at the end: the job may expect that it has only its own descriptors
        try:
            while not _is_accepted(tables, own, peer, looks_for_listener=time.monotonic() >= started + LISTENER_AFTER):
                _check_open(connection)
                if time.monotonic() >= started + ACCEPT_TIMEOUT:
                    raise TimeoutError(f"no program has accepted the connection within {ACCEPT_TIMEOUT:g} s")
                time.sleep(POLL_INTERVAL)
        except OwnersNotShown:
            return
    _check_open(connection)


def _is_accepted(
    tables: SocketTables, own: tuple[str, int], peer: tuple[str, int], *, looks_for_listener: bool
) -> bool:
    """Return whether a process of this user has accepted a connection, or is the only one that can still do so.

    A connection that waits in the queue of a listener is reset when the listener is closed, so no other listener on the
    same port can accept it.

    Args:
        tables: The sockets of this machine.
        own: The address of this end.
        peer: The address of the other end.
        looks_for_listener: Whether to look for a process that can still accept the connection.

    Raises:
        PermissionError: another user's program has accepted it.
    """
    owner = tables.peer_owner(own, peer)
    has_own_listener = owner is None and looks_for_listener and _has_own_listener(tables, peer[1])
    if has_own_listener:
        owner = tables.peer_owner(own, peer)  # once more: meanwhile, another user's program may have accepted
    if owner not in {None, own_user()}:
        raise PermissionError("another user's program has accepted the connection")
    return owner is not None or has_own_listener


def _has_own_listener(tables: SocketTables, port: int) -> bool:
    try:
        return tables.listener_owners(port) == {own_user()}
    except OwnersNotShown:  # single connections may be shown nevertheless
        return False


def _check_open(connection: Any) -> None:
    if connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] != ESTABLISHED:
        raise ConnectionResetError("the connection was closed")
