"""The part of the table with features that change the messages between pydevd and debugpy's adapter."""

from __future__ import annotations

from relay_agent.debugpy_internals.common import BYTES, COMM, DICT, MESSAGE, WRITER
from relay_agent.debugpy_internals.feature import Feature, Internal

__all__ = ["FLOODS", "PREFETCH", "SENDING", "UNSUPPORTED"]

SENDING = Feature(
    "each response takes up to 40 ms longer, and a response of 16 MiB or more makes the session hang",
    Internal("_pydevd_bundle.pydevd_net_command:NetCommand.send", "replaced", "sets TCP_NODELAY and limits the size"),
    MESSAGE,
    BYTES,
    DICT,
)
FLOODS = Feature(
    "with `redirectOutput`, a job that prints without pause gets no response to the editor's requests, and its memory "
    "grows",
    Internal(
        "_pydevd_bundle.pydevd_net_command_factory_json:NetCommandFactoryJson.make_io_message",
        "replaced",
        "limits how much output waits to be sent",
    ),
    Internal(
        "_pydevd_bundle.pydevd_net_command_factory_json:NetCommandFactoryJson.make_console_message",
        "called",
        "reports how much output was left out",
    ),
    Internal(f"{COMM}:WriterThread.add_command", "replaced", "limits how much output waits to be sent"),
    Internal(f"{COMM}:WriterThread._cmd_queue", "called", "keeps output in order with other messages", True),
    Internal(f"{COMM}:CMD_EXIT", "read", "the last message of a connection"),
    Internal("pydevd:PyDB.dispose_and_kill_all_pydevd_threads", "replaced", "sends the last output first"),
    Internal(
        "_pydevd_bundle.pydevd_process_net_command_json:PyDevJsonCommandProcessor.process_net_command_json",
        "replaced",
        "receives the adapter's receipts for output",
    ),
    Internal("_pydevd_bundle.pydevd_dont_trace_files:DONT_TRACE", "set", "keeps threads from stopping in relay_agent"),
    Internal("_pydevd_bundle.pydevd_dont_trace_files:PYDEV_FILE", "read", "marks a file that is not traced"),
    WRITER,
    MESSAGE,
)
UNSUPPORTED = Feature(
    "after a request that debugpy does not support, such as `cancel`, the debugger responds to nothing",
    Internal(
        "_pydevd_bundle.pydevd_process_net_command_json:PyDevJsonCommandProcessor.process_net_command_json",
        "replaced",
        "rejects requests without a function `on_..._request`",
    ),
    WRITER,
    MESSAGE,
)
PREFETCH = Feature(
    "a step takes a few milliseconds longer, because the responses to the editor's requests are not prefetched",
    Internal(
        "_pydevd_bundle.pydevd_process_net_command_json:PyDevJsonCommandProcessor.process_net_command_json",
        "replaced",
        "receives the prefetch set, and processes prefetch requests",
    ),
    Internal(f"{COMM}:WriterThread.add_command", "replaced", "moves prefetched responses into events"),
    Internal(f"{COMM}:ReaderThread.process_net_command_json", "called", "processes prefetch requests", True),
    Internal("pydevd:PyDB.reader", "read", "the thread that processes requests", True),
    Internal(
        "_pydevd_bundle.pydevd_net_command:NetCommand.send",
        "called",
        "pydevd's writer thread calls it for each message",
    ),
    WRITER,
    MESSAGE,
    BYTES,
    DICT,
)
