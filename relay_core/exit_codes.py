"""Exit codes of the three programs.

`relay_core.errors` assigns one of them to each class of errors. docs/reference/exit-codes.md describes them for users.
"""

from __future__ import annotations

from typing import Final

SUCCESS: Final = 0
"""The command succeeded, or was stopped on request (Ctrl-C, SIGTERM)."""
FAILURE: Final = 1
"""An error that has no code of its own."""
USAGE: Final = 2
"""The command line is invalid; argparse uses 2 as well."""
CONFIGURATION: Final = 3
"""A connection string, a file, a secret or a variable is invalid, or no identity is available."""
UNAUTHORIZED: Final = 4
"""The relay, Key Vault or Entra ID refused the key, token or identity."""
HYBRID_CONNECTION_NOT_FOUND: Final = 5
"""The namespace has no such hybrid connection."""
RELAY_UNREACHABLE: Final = 6
"""The relay cannot be reached, or answered 5xx or 429."""
UNTRUSTED_CERTIFICATE: Final = 7
"""The TLS certificate of the relay or of Key Vault is not trusted."""
LOCAL_PORT_IN_USE: Final = 8
"""A local port is in use."""
NO_LISTENER: Final = 9
"""The hybrid connection has no listener."""
REJECTED: Final = 10
"""The listener refused the connection, or did not answer in time."""
TOO_MANY_LISTENERS: Final = 11
"""The hybrid connection already has 25 listeners."""
CONNECTION_LOST: Final = 12
"""An established connection closed unexpectedly."""
PROTOCOL_ERROR: Final = 13
"""The peer violated the protocol."""
TIMED_OUT: Final = 14
"""An awaited event did not happen in time."""
NO_CLIENT: Final = 15
"""No matching relay-client is running."""
HANG_FOUND: Final = 16
"""`relay-client hang`: ranks are waiting in a collective operation. This is a result, not an error."""
NO_VALUE: Final = 17
"""`relay-client eval` and `diff`: no rank has a value of the expression; `watch`: none has reported one."""
NOTHING_TO_RELEASE: Final = 18
"""`relay-client release`: no debugger of this relay-client holds the rank."""
NOT_EXECUTABLE: Final = 126
"""`relay-agent run`: the command cannot be executed, as of shells (POSIX, Shell Command Language, 2.8.2)."""
NOT_FOUND: Final = 127
"""`relay-agent run`: the command does not exist, as of shells."""
INTERRUPTED: Final = 130
"""128 + SIGINT: a second Ctrl-C stopped the program, or the first Ctrl-C stopped a command that only waits for
something."""
OUTPUT_CLOSED: Final = 141
"""128 + SIGPIPE, as of other programs: the reader of the output, such as `head`, has exited."""
