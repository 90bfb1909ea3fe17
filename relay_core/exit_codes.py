"""Exit codes of the three programs for outcomes that are not errors, or not only.

`relay_core.errors` has the other codes, each at its class of errors. docs/reference/exit-codes.md describes all of them
for users.
"""

from __future__ import annotations

from typing import Final

SUCCESS: Final = 0
"""The command succeeded, or was stopped on request (Ctrl-C, SIGTERM)."""
HANG_FOUND: Final = 16
"""`relay-client hang`: ranks are waiting in a collective operation. This is a result, not an error."""
NO_VALUE: Final = 17
"""`relay-client eval` and `diff`: no rank has a value of the expression; `watch`: none has reported one."""
NOT_EXECUTABLE: Final = 126
"""`relay-agent run`: the command cannot be executed, as of shells (POSIX, Shell Command Language, 2.8.2)."""
NOT_FOUND: Final = 127
"""`relay-agent run`: the command does not exist, as of shells."""
INTERRUPTED: Final = 130
"""128 + SIGINT: a second Ctrl-C stopped the program, or the first Ctrl-C stopped a command that only waits for
something."""
OUTPUT_CLOSED: Final = 141
"""128 + SIGPIPE, as of other programs: the reader of the output, such as `head`, has exited."""
