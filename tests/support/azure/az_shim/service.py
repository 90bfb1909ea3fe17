"""How a script's `az` comes to the test's own process: starting a Python for each call would take most of the time.

az (bash) --> number of arguments, arguments, environment, each with a NUL; an empty one ends --> this process
   <-- exit code, length of stdout in bytes, newline, stdout, stderr <--
"""

from __future__ import annotations

import contextlib
import io
import shutil
import socketserver
import threading
from collections.abc import Callable
from pathlib import Path

from tests.support.azure.az_shim.fake_az import Answer

AZ = """\
#!{bash}
exec 3<>/dev/tcp/127.0.0.1/{port}
{{ printf '%s\\0' "$#" "$@"; {env} -0; printf '\\0'; }} >&3
read -r -u 3 code length
if ((length)); then {head} -c "$length" <&3; fi
if ((code)); then {cat} <&3 >&2; fi
exit "$code"
"""

PROGRAMS = ("bash", "env", "head", "cat")
"""What it uses; the PATH of who calls it may have none of them."""

Carry = Callable[[list[str], dict[str, str]], Answer]
"""Carries out a call, given its arguments and environment."""


class Service:
    """Answers the calls of an `az` that it puts into a folder."""

    def __init__(self, carry: Carry) -> None:
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.carry = carry
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), name="az", daemon=True)
        self._thread.start()

    def install(self, folder: Path) -> None:
        """Put `az` into a folder."""
        az = folder / "az"
        programs = {name: shutil.which(name) for name in PROGRAMS}
        az.write_text(AZ.format(port=self._server.server_address[1], **programs))
        az.chmod(0o755)

    def close(self) -> None:
        """Answer no more."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    carry: Carry


class _Handler(socketserver.StreamRequestHandler):
    server: _Server

    def handle(self) -> None:
        count = int(_word(self.rfile))
        arguments = [_word(self.rfile) for _ in range(count)]
        environment = {}
        while variable := _word(self.rfile):
            name, _, environment[name] = variable.partition("=")
        code, out, err = self.server.carry(arguments, environment)
        with contextlib.suppress(ConnectionError):  # that `az` was killed meanwhile
            self.wfile.write(f"{code} {len(out.encode())}\n{out}{err}".encode())


def _word(stream: io.BufferedIOBase) -> str:
    word = bytearray()
    while (byte := stream.read(1)) not in {b"", b"\0"}:
        word += byte
    return word.decode(errors="surrogateescape")
