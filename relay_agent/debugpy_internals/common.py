"""debugpy's private functions that several features use."""

from __future__ import annotations

from relay_agent.debugpy_internals.feature import Internal

__all__ = ["BYTES", "COMM", "DEBUGGER", "DICT", "ENABLE", "LOCK", "MESSAGE", "WRITER"]

COMM = "_pydevd_bundle.pydevd_comm"
MESSAGE = Internal("_pydevd_bundle.pydevd_net_command:NetCommand", "called", "creates a message for the adapter")
BYTES = Internal("_pydevd_bundle.pydevd_net_command:NetCommand._as_bytes", "read", "the size of a message", True)
DICT = Internal("_pydevd_bundle.pydevd_net_command:NetCommand.as_dict", "read", "the content of a message")
DEBUGGER = Internal("pydevd:get_global_debugger", "called", "finds the debugger of the process")
WRITER = Internal("pydevd:PyDB.writer", "read", "the connection to the adapter", True)
LOCK = Internal("pydevd:PyDB._main_lock", "called", "held while pydevd processes a request", True)
ENABLE = Internal("pydevd:PyDB.enable_tracing", "called", "traces a thread")
