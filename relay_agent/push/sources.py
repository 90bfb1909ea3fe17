"""The files of this process whose code was replaced, with their current text; the files on the node are not changed.

Tracebacks, `inspect` and the debugger show lines of the current text. This module is imported only when the first push
arrives.
"""

from __future__ import annotations

import functools
import linecache
import sys

from relay_agent.debugpy_internals.table import PUSHED_LINES

_sources: dict[str, str] = {}


def pushed_source(filename: str) -> str | None:
    """Return the text that was last pushed for a file; None if none was pushed."""
    return _sources.get(filename)


def replace_source(filename: str, source: str, *, is_armed: bool) -> None:
    """Set the current text of a file.

    Args:
        filename: As in the code objects.
        source: The text.
        is_armed: Whether debugpy is tracing this process.
    """
    _sources[filename] = source
    # An entry without a time is not compared with the file on disk.
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    if "_pydevd_bundle.pydevd_api" in sys.modules:
        install()
        if is_armed:
            _set_breakpoints_again()


@functools.cache
def install() -> None:
    """Make pydevd find the lines in the current text at which breakpoints can be set."""
    if not PUSHED_LINES.is_available():
        return
    from _pydevd_bundle import pydevd_api  # noqa: PLC0415 - in debug runs only

    lines_of = pydevd_api._get_code_lines  # noqa: SLF001 - as in the table

    def lines(code: object) -> object:
        if isinstance(code, str) and not PUSHED_LINES.is_off and (source := _sources.get(code)) is not None:
            code = compile(source, code, "exec", dont_inherit=True)
        return lines_of(code)

    pydevd_api._get_code_lines = lines  # noqa: SLF001 - as above


def _set_breakpoints_again() -> None:
    """Set all breakpoints at the lines that the editor has sent: pydevd had moved them to lines of the old text."""
    with PUSHED_LINES.guarded():
        from _pydevd_bundle.pydevd_api import PyDevdAPI  # noqa: PLC0415 - in debug runs only
        from pydevd import get_global_debugger  # noqa: PLC0415

        debugger = get_global_debugger()
        if debugger is not None:
            with debugger._main_lock:  # noqa: SLF001 - as in the table
                PyDevdAPI().reapply_breakpoints(debugger)
