"""TensorBoard with a port that only its own user can use: `python -m relay_client.tensorboard.checked OPTIONS`.

TensorBoard accepts connections of every user of the machine, and requests under any host name, so that a web page could
read the curves too (`relay_core.net.loopback`). This program is TensorBoard with another class for its server, which is
a parameter of its API. It writes a line to its standard output when the port is open.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from relay_core.net.loopback import FOREIGN_HOST, PeerCheck, is_rebound
from relay_core.socket_tables import LOOPBACK, ROOT, own_user

LISTENING = b"listening\n"


def main(options: Sequence[str]) -> int:
    """Run TensorBoard until it is terminated, and return its exit status.

    Args:
        options: TensorBoard's; the port must be among them.
    """
    from tensorboard import default, main_lib, program  # noqa: PLC0415 - optional, and slow to import

    peers = PeerCheck(frozenset({own_user(), ROOT}), lambda _why: None)

    class Server(program.WerkzeugServer):  # type: ignore[misc] # the package has no types
        def __init__(self, application: Callable[..., Iterable[bytes]], flags: Any) -> None:
            super().__init__(_refusing_foreign_hosts(application), flags)
            os.write(1, LISTENING)
            os.dup2(2, 1)  # nobody reads what a plugin prints

        def verify_request(self, request: Any, _address: object) -> bool:
            """Return whether to serve a connection; called before anything is read."""
            return peers.admits(request)

    main_lib.global_init()
    board = program.TensorBoard(plugins=default.get_plugins(), server_class=Server)
    # Its faster loader is a server of its own, which any user can query.
    board.configure(["tensorboard", "--host", LOOPBACK, "--load_fast", "false", *options])
    return int(board.main() or 0)


def _refusing_foreign_hosts(application: Callable[..., Iterable[bytes]]) -> Callable[..., Iterable[bytes]]:
    def checked(environ: dict[str, Any], start_response: Callable[..., object]) -> Iterable[bytes]:
        if is_rebound(environ.get("HTTP_HOST"), LOOPBACK):
            start_response("403 Forbidden", [("Content-Type", "text/plain")])
            return [FOREIGN_HOST.encode()]
        return application(environ, start_response)

    return checked


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
