"""An extension of pydevd (`pydevd_plugins/extensions/README.md` in debugpy): a child's is mended as its parent's.

This folder is in PYTHONPATH of the Python processes that a job with `--debug-follow-children` starts anew. pydevd
imports it where it runs, and nothing else does.
"""

import contextlib

from _pydevd_bundle.pydevd_extension_api import DebuggerEventHandler

__all__ = ["Fixes"]


class Fixes(DebuggerEventHandler):  # type: ignore[misc] # pydevd has no types
    """Called by pydevd."""

    def on_debugger_modules_loaded(self, **_: object) -> None:
        """Mend the pydevd of this process."""
        with contextlib.suppress(ImportError):  # another interpreter than its parent's; pydevd is as it was
            from relay_agent.debuggee import pydevd_patches  # noqa: PLC0415 - it may be missing

            pydevd_patches.install()
