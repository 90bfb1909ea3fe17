"""A feature that depends on private functions of debugpy and is switched off if this version does not have them.

A version of debugpy may rename or change its private functions at any time. Such a change must not end a debug session.
The functions of a feature are therefore looked up before it is used, and an error in the feature also switches it off
permanently. Then debugpy's own functions are called as if relay-debug had not replaced them, and a line on the job's
stderr reports what is missing.
"""

from __future__ import annotations

import functools
import importlib
import sys
from dataclasses import dataclass

from relay_agent.job.gevent_originals import threading
from relay_agent.job.stderr import write_line

CHECKED_VERSIONS = ("1.8.14", "1.8.22")
"""The oldest and the newest version of debugpy with which all features were checked; all versions in between were
checked too."""


@dataclass(frozen=True)
class Internal:
    """A private function or attribute of debugpy.

    Attributes:
        use: How it is used: "replaced", "called", "set" or "read".
        name: Its qualified name, as `module:Class.attribute`.
        why: The reason, for the documentation.
        of_instance: Whether only instances have it, so that it cannot be looked up in advance.
    """

    use: str
    name: str
    why: str
    of_instance: bool = False

    def look_up(self) -> object:
        """Return the function or attribute, or its class if only instances have it.

        Raises:
            ImportError: debugpy has no such module.
            AttributeError: the module or class has no such attribute.
        """
        module, _, path = self.name.partition(":")
        names = path.split(".")[: -1 if self.of_instance else None]
        return functools.reduce(getattr, names, importlib.import_module(module))


class Feature:
    """A feature that uses a few of debugpy's private functions and is on or off as a whole.

    Args:
        without: The effect on the user if the feature is off.
        internals: The functions.
    """

    def __init__(self, without: str, *internals: Internal) -> None:
        self.without = without
        self.internals = internals
        self.is_off = False
        """True after the first failure; forked children inherit it."""
        self._was_checked = False
        self._failure_logged = threading.Lock()
        """Acquired by the thread that logs the failure, and never released."""

    def is_available(self) -> bool:
        """True if this debugpy has all the functions and none of them has failed; their existence is checked once."""
        if not (self._was_checked or self.is_off):
            with self.guarded():
                for internal in self.internals:
                    internal.look_up()
            self._was_checked = True
        return not self.is_off

    def guarded(self) -> Feature:
        """Return a context manager that switches the feature off if its block raises, and suppresses the exception."""
        return self

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> bool:
        if not isinstance(error, Exception):
            return False
        self.switch_off(error)
        return True

    def switch_off(self, error: Exception) -> None:
        """Switch the feature off permanently, and log this once."""
        self.is_off = True
        if self._failure_logged.acquire(blocking=False):
            first, last = CHECKED_VERSIONS
            version = getattr(sys.modules.get("debugpy"), "__version__", "of an unknown version")
            write_line(
                f"{self.without}: debugpy {version} has unexpected internals "
                f"({type(error).__name__}: {error}); relay-debug was tested with {first} to {last}"
            )
