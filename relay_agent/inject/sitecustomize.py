"""Startup hook for every Python process in a `relay-agent run` job; Python runs it before the program.

It first runs the `sitecustomize` that the process would have without relay-debug, and then registers the process if it
should be debugged. Other processes are delayed only by one small import. Errors are printed to stderr and never stop
the job.

The job may also run tools with other Python versions, so this file must compile on any Python 3.
"""

import os
import sys


def _chain() -> None:
    """Import the next `sitecustomize` on the path in place of this one; `site` reports its errors as usual."""
    here = os.path.dirname(__file__)  # noqa: PTH120 - pathlib costs more than all of this
    sys.path[:] = [entry for entry in sys.path if entry != here]
    ours = sys.modules.pop(__name__)
    try:
        __import__(__name__)
    except ImportError as error:
        if error.name != __name__:
            raise
    finally:
        sys.modules.setdefault(__name__, ours)  # the import of this file expects it there


def _helper_reason() -> "str | None":
    """Return why this process should not be debugged, judged by its command line; None if it may be debugged."""
    mode = os.environ.get("RELAY_DEBUG", "")
    if not mode or sys.version_info < (3, 10):
        return "off"
    # In this directory, which is in `sys.path` until `_chain`.
    from _relay_debug_programs import helper_reason, is_off  # type: ignore[import-not-found]  # noqa: PLC0415

    return "off" if is_off(mode) else helper_reason(sys.orig_argv)


def _register(reason: "str | None") -> None:
    is_child = bool(reason) and "multiprocessing" in str(reason) and "RELAY_DEBUG_TIMEOUTS" in os.environ
    if reason is not None and not is_child:
        return
    try:
        from relay_agent.startup.register import register_process  # noqa: PLC0415 - only in processes to debug
    except (Exception, SystemExit) as error:  # noqa: BLE001 - this may be any Python, with any packages and modules
        message = "this process cannot be debugged, because {} cannot import relay-debug: {}"
        _report(message.format(sys.executable, error))
    else:
        register_process(is_child=is_child)


def _report(text: str) -> None:
    if sys.stderr is not None:
        sys.stderr.write("relay-agent: " + text + "\n")


def _run() -> None:
    try:
        reason = _helper_reason()
    except Exception as error:  # noqa: BLE001 - a file is missing, for example
        reason = "broken"
        _report("this process cannot be debugged: {}".format(error))  # noqa: UP032 - for old Pythons
    try:
        _chain()
    except Exception:
        _register(reason)
        raise
    _register(reason)


if __name__ == "sitecustomize":
    _run()
