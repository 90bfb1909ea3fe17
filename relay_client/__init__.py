"""The client: local ports on the laptop that lead to debuggers on remote compute."""

import relay_core.program  # noqa: F401 - before everything else: it sets the import path
