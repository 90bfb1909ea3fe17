"""debugpy's adapter, with ports that serve the user of this process only.

debugpy starts its adapter as `python DIRECTORY --for-server ...`; `debugpy_start` gives it this directory. The
adapter's port for debuggers needs no proof, and every user of a machine can reach 127.0.0.1. So each connection is
checked before the adapter sees it. That also keeps a stranger from ending the adapter's accept thread, by connecting
and closing at once (microsoft/debugpy#1308).

The adapter's environment has no PYTHONPATH, so the packages are found by path: this one's, and debugpy's in a variable.
"""

import os
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from socket import socket
from typing import Any

ADAPTER_VARIABLE = "GUARDED_DEBUGPY_ADAPTER"
"""The directory of debugpy's own adapter."""


def main() -> None:
    """Run debugpy's adapter with checked ports."""
    adapter = Path(os.environ.pop(ADAPTER_VARIABLE))
    sys.path[0] = str(Path(__file__).parents[3])
    from relay_core.socket_tables import OwnerUnknown, SocketTables, own_user  # noqa: PLC0415 - found only now

    sys.path[0] = str(adapter.parents[1])
    from debugpy.common import sockets  # noqa: PLC0415

    del sys.path[0]
    tables, serve = SocketTables(), sockets.serve

    def is_own(connection: socket) -> bool:
        try:
            return tables.peer_owner(connection.getsockname()[:2], connection.getpeername()[:2]) == own_user()
        except OwnerUnknown:  # this system does not show who connects
            return True
        except OSError:  # the connection was reset
            return False

    def serve_own_user(name: str, handler: Callable[[socket], Any], *arguments: Any, **options: Any) -> socket:
        def check(connection: socket) -> None:
            if is_own(connection):
                handler(connection)
            else:
                connection.close()

        return serve(name, check, *arguments, **options)  # type: ignore[no-any-return]

    sockets.serve = serve_own_user
    sys.argv[0] = str(adapter)
    runpy.run_path(str(adapter / "__main__.py"), run_name="__main__")


if __name__ == "__main__":
    main()
