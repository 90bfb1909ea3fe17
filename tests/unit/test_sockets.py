"""The sources open no socket that is missing in the table of docs/concepts/sockets.md."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("relay_agent", "relay_client", "relay_core", "relay_server")

# What opens a listening or an outgoing connection: the standard library, this project's own helpers, and packages.
OPENING = frozenset(
    {
        *("socket", "fromfd", "create_server", "create_connection", "create_datagram_endpoint"),
        *("start_server", "start_unix_server", "create_unix_server", "create_unix_connection"),
        *("open_connection", "open_unix_connection", "sock_connect"),
        *("listening_socket", "connect_local", "LocalServer.open", "LocalServer"),
        *("HTTPConnection", "HTTPSConnection", "urlopen", "HTTPServer", "ThreadingHTTPServer", "TCPServer"),
        *("ClientSession", "TCPSite", "UnixSite", "SockSite", "start_connection", "connect_socks_proxy"),
        *("debugpy.listen", "debugpy.connect", "program.TensorBoard"),
    }
)


def opened() -> Iterator[tuple[str, str]]:
    """Yield each source file that opens a socket, with the name of the call."""
    for path in sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func)
                for name in (called, called.rpartition(".")[2]):
                    if name in OPENING:
                        yield path.relative_to(ROOT).as_posix(), name


def documented() -> Iterator[tuple[str, str]]:
    """Yield the files and calls in the table's column "opened in"."""
    text = (ROOT / "docs/concepts/sockets.md").read_text(encoding="utf-8")
    for file, calls in re.findall(r"`([\w/]+\.py)`: ((?:`[\w.]+`(?:, )?)+)", text):
        for call in re.findall(r"`([\w.]+)`", calls):
            yield file, call


def test_each_socket_is_in_the_table() -> None:
    """Each call that opens a socket is in the table, with who may use it, and the table names no other."""
    assert set(opened()) == set(documented())
