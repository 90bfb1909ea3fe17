"""Extension of pydevd (`pydevd_plugins/extensions/README.md` in debugpy) that patches it in child processes.

This directory is on the PYTHONPATH of the Python processes that a job with `--debug-follow-children` starts. Only
pydevd imports it.
"""

import contextlib
import os
import sys

from _pydevd_bundle.pydevd_extension_api import DebuggerEventHandler


class Fixes(DebuggerEventHandler):  # type: ignore[misc] # pydevd has no types
    """Event handler that pydevd finds by its base class and then calls."""

    def on_debugger_modules_loaded(self, **_: object) -> None:
        """Patch the pydevd of this process."""
        # debugpy warns about every module named pydev* that is not its own; pydevd no longer needs this one.
        sys.modules.pop(__name__, None)
        with contextlib.suppress(ImportError):  # the child's interpreter does not have relay_agent: no patches
            from relay_agent.debuggee import gevent_support, pydevd_patches  # noqa: PLC0415 - as below
            from relay_agent.debuggee.debugger import debugger  # noqa: PLC0415 - it may be missing

            values = os.environ.get(pydevd_patches.VALUES_VARIABLE) != "off"
            pydevd_patches.install(values=values, is_child=True)
            gevent_support.silence_hint()
            gevent_support.watch_patches(before_patch=debugger.end)
