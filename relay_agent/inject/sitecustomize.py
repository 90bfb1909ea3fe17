"""Run by every Python process of a `relay-agent run` job as it starts, before its program.

First comes the `sitecustomize` that the process would have had without us; then, if the process may be a program to
debug, the rest of relay_agent. All others have been kept for the time of one small import. Whatever goes wrong becomes
a line on stderr: the job is worth more than its debugger.

This file is read by other Pythons too, of tools that the job calls: it must compile on any Python 3.
"""

import os
import sys


def _chain() -> None:
    """Import the next `sitecustomize` on the path in this one's place; its errors are `site`'s to report, as ever."""
    here = os.path.dirname(__file__)  # noqa: PTH120 - pathlib costs more than all of this
    sys.path[:] = [entry for entry in sys.path if entry != here]
    ours = sys.modules.pop(__name__)
    try:
        __import__(__name__)
    except ImportError as error:
        if error.name != __name__:
            raise
    finally:
        sys.modules.setdefault(__name__, ours)  # the import that brought us here looks for it


def _why_not() -> "str | None":
    """Return why this process is not a program to debug; None if it may be one, as far as a first look shows."""
    mode = os.environ.get("RELAY_DEBUG", "")
    if not mode or sys.version_info < (3, 10):
        return "off"
    # Beside this file, which is on the path until `_chain`.
    from _relay_debug_programs import helper_reason, is_off  # type: ignore[import-not-found]  # noqa: PLC0415

    return "off" if is_off(mode) else helper_reason(sys.orig_argv)


def _register(why_not: "str | None") -> None:
    is_child = bool(why_not) and "multiprocessing" in str(why_not) and "RELAY_DEBUG_TIMEOUTS" in os.environ
    if why_not is not None and not is_child:
        return
    try:
        from relay_agent.inject.register import register_process  # noqa: PLC0415 - for programs to debug only
    except Exception as error:  # noqa: BLE001 - in a Python that we know nothing of
        _say("{} is without relay-debug, so this process cannot be debugged: {}".format(sys.executable, error))  # noqa: UP032 - for old Pythons
    else:
        register_process(is_child=is_child)


def _say(text: str) -> None:
    if sys.stderr is not None:
        sys.stderr.write("relay-agent: " + text + "\n")


def _run() -> None:
    try:
        why_not = _why_not()
    except Exception as error:  # noqa: BLE001 - a file is missing, say
        why_not = "broken"
        _say("this process cannot be debugged: {}".format(error))  # noqa: UP032 - for old Pythons
    try:
        _chain()
    except Exception:
        _register(why_not)
        raise
    _register(why_not)


if __name__ == "sitecustomize":
    _run()
