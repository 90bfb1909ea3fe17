"""Modules of the standard library as they were before gevent replaced parts of them, for the code that runs in the job.

`gevent.monkey.patch_all()` makes threads and sockets cooperative: they run only while the job's own greenlets wait, and
a breakpoint stops them all. The threads that serve the debugger must run meanwhile. So each attribute of the modules
below is looked up when it is used: in a copy of the module, imported again, if gevent has patched the module, and
otherwise in the module itself. Without gevent nothing is copied or imported.
"""

from __future__ import annotations

import _thread
import contextlib
import functools
import importlib
import os as _os
import sys
import time as _time
from collections.abc import Iterator
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import os
    import queue
    import socket
    import subprocess
    import threading
    import time

__all__ = [
    "GEVENT_VARIABLE",
    "copies_in_use",
    "import_gevent",
    "is_active",
    "os",
    "queue",
    "socket",
    "subprocess",
    "subprocess_in_use",
    "threading",
    "time",
]

GEVENT_VARIABLE = "GEVENT_SUPPORT"
"""debugpy's variable: the job will use gevent, even if it has not patched anything yet."""
_PATCH_INTERVAL = 0.005
"""Seconds between two checks whether `gevent.monkey` is patching, which takes some 10 ms."""
_copying = _thread.allocate_lock()
_sleep = _time.sleep
_COPIED = ("_thread", "time", "select", "threading", "selectors", "socket", "queue", "subprocess")
"""Modules that gevent patches, or that import functions from such modules."""


def is_active() -> bool:
    """Return whether gevent has patched the standard library, or is announced by `GEVENT_SUPPORT`."""
    monkey = sys.modules.get("gevent.monkey")
    return bool(getattr(monkey, "saved", None)) or _os.environ.get(GEVENT_VARIABLE, "").lower() in {"1", "true", "yes"}


def import_gevent() -> None:
    """Import gevent if it will be used: it takes the thread that imports it first for the main thread."""
    if is_active():
        with contextlib.suppress(ImportError):
            importlib.import_module("gevent")


@contextlib.contextmanager
def copies_in_use(*names: str) -> Iterator[None]:
    """Let `import` find the copies of these modules in this block, which must be short: it affects all threads."""
    patched = {name: sys.modules[name] for name in names}
    sys.modules.update({name: _find_copies()[name] for name in names})
    try:
        yield
    finally:
        sys.modules.update(patched)


@contextlib.contextmanager
def subprocess_in_use() -> Iterator[None]:
    """Let all code start processes with the original `subprocess` in this block.

    That of gevent works only in the thread of its main loop. A greenlet that starts a process meanwhile blocks it.
    """
    names = getattr(sys.modules.get("gevent.monkey"), "saved", {}).get("subprocess", ())
    module = vars(importlib.import_module("subprocess"))
    patched = {name: module[name] for name in names}
    module.update({name: getattr(subprocess, name) for name in names})
    try:
        yield
    finally:
        module.update(patched)


class _Module:
    """A module whose attributes are looked up as the docstring of this file describes."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        if is_active():
            return getattr(_find_copies()[self._name], attribute)
        return getattr(__import__(self._name), attribute)  # no Python code, which a debugger that stops here would show


def _find_copies() -> dict[str, ModuleType]:
    if not _copies.cache_info().currsize:
        _wait_for_patch()
    with _copying:
        return _copies()


def _wait_for_patch() -> None:
    """Wait while another thread is in `gevent.monkey`: it would patch the copies while they replace the modules."""
    own = _thread.get_ident()
    while any(ident != own and _is_patching(frame) for ident, frame in sys._current_frames().items()):  # noqa: SLF001
        _sleep(_PATCH_INTERVAL)


def _is_patching(frame: Any) -> bool:
    while frame is not None:
        module: str = frame.f_globals.get("__name__", "")
        if module.startswith("gevent.monkey") and frame.f_code.co_name.startswith("patch_"):
            return True
        frame = frame.f_back
    return False


@functools.cache
def _copies() -> dict[str, ModuleType]:
    for name in _COPIED:
        importlib.import_module(name)
    patched = {name: sys.modules.pop(name) for name in _COPIED}
    patched["os"] = sys.modules["os"]
    sys.modules["os"] = _original_os()
    try:
        copies = {name: importlib.import_module(name) for name in (*_COPIED, "os")}
    finally:
        sys.modules.update(patched)
    if _main_thread is not None:
        _correct_main_thread(copies["threading"], _main_thread)
    return copies


def _original_os() -> ModuleType:
    """Return a copy of `os` with the original functions; gevent's `close` waits for the main loop of its thread."""
    module = ModuleType("os")
    monkey = sys.modules.get("gevent.monkey")
    vars(module).update({**vars(_os), **getattr(monkey, "saved", {}).get("os", {})})
    return module


def _correct_main_thread(copy: Any, ident: int) -> None:
    """Correct a copy of `threading`: up to Python 3.12 it takes the thread that imports it for the main thread."""
    main = copy.main_thread()
    with copy._active_limbo_lock:  # noqa: SLF001 - nothing public has the table of threads
        del copy._active[main.ident]  # noqa: SLF001 - likewise
        main._ident = ident  # noqa: SLF001 - likewise
        copy._active[ident] = main  # noqa: SLF001 - likewise


if not TYPE_CHECKING:
    os, queue, socket, subprocess, threading, time = map(
        _Module, ("os", "queue", "socket", "subprocess", "threading", "time")
    )

_main_thread = None if is_active() else threading.main_thread().ident
"""The main thread's ident, or None if gevent has replaced it; the copies are then imported in that thread."""

if hasattr(_os, "register_at_fork"):  # a process that is forked while another thread makes the copies needs the lock
    _os.register_at_fork(before=_copying.acquire, after_in_parent=_copying.release, after_in_child=_copying.release)
