"""Modules of the standard library as they were before the job replaced parts, for the code that runs in the job.

`gevent.monkey.patch_all()` makes threads and sockets cooperative: they run only while the job's own greenlets wait, and
a breakpoint stops them all. The threads that serve the debugger must run even then. So each attribute of the modules
below is looked up when it is used: in a copy with the original functions if gevent has patched the module, and
otherwise in the module itself. Without gevent, nothing is copied or imported.

eventlet patches the same modules. debugpy does not work with it, but the other requests to a job do. eventlet keeps no
original functions, so its copies have those of the C modules, loaded once more.

A test of the job may also stop the clock: freezegun replaces `time.monotonic` and `time.time`, in this module too if
they were its attributes. A wait with a time limit would then never end. So `time` is always loaded once more from its C
code. time-machine 2.13 to 2.19 changes the C code itself, for both modules, so `monotonic` is made from
`clock_gettime`, which they change for the time of day only.

A job may replace the functions of `json`, by faster ones that return bytes or by a mock. The messages to the agent
would then be unreadable. So `json` is always executed once more.

What was rejected:

  * `gevent.monkey.get_original`: it returns single functions. The classes that are needed (`Event`, `Condition`,
    `Popen`) are Python code, which finds its locks among the globals of its module, and these are patched.
    Hence the modules are executed again, with imports of their own.
  * Copies at the start of each job, before anything is patched: they take 35 to 80 ms on two busy cores and 0.6 MiB,
    and nearly no job uses gevent. A job may also have patched everything before it imports relay_agent.
  * Native threads for all of relay_agent by starting it in another process: the threads that answer questions about
    this process have to be in it.

The price is that each attribute is looked up by Python code, about 6 microseconds instead of 0.3 on the same machine.
That is negligible at the rate of requests; code in a hot path takes its functions once.

Invariant: no copy is found under the module's own name, except within `copies_in_use`. gevent could patch it, and a
lock of the copy that a greenlet waits for would block the whole hub.

What is ugly and must stay: `threading` is not written to exist twice. Its copy would take over the lock that Python
releases at the end of a thread (`_without_sentinel`), believes that the importing thread is the main one
(`_correct_main_thread`), and a thread whose key gevent has changed cannot remove itself from the table (`keep_thread`).
The first kept jobs from exiting, and the last could abort them at their exit.
"""

from __future__ import annotations

import _thread
import builtins
import contextlib
import functools
import importlib
import os as _os
import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import json
    import os
    import select
    import socket
    import subprocess
    import threading
    import time

__all__ = [
    "GEVENT_VARIABLE",
    "copies_in_use",
    "import_gevent",
    "is_active",
    "is_patched_by_eventlet",
    "is_patched_by_gevent",
    "json",
    "keep_thread",
    "os",
    "prepare_imports",
    "select",
    "socket",
    "subprocess",
    "subprocess_in_use",
    "threading",
    "time",
]

GEVENT_VARIABLE = "GEVENT_SUPPORT"
"""debugpy's variable, which announces that the job will use gevent, even if gevent has not patched anything yet."""
_EXTENSIONS = ("os", "_thread", "select")
"""Modules that gevent patches, and whose original functions it keeps."""
_PYTHON = ("threading", "selectors", "socket", "queue", "subprocess")
"""Modules that gevent patches, or that import functions from such modules; each one imports only modules that precede
it here. `queue` is for pydevd (`relay_agent.debuggee.gevent_support`).
"""
_MAX_ATTEMPTS = 20
_ATTEMPT_INTERVAL = 0.05
"""Seconds between attempts to create a hub, which fail while another thread imports the same modules of gevent."""
_COPY_NAME = "_relay_agent_original_{}"


def is_active() -> bool:
    """Return whether gevent has patched the standard library, or is announced by `GEVENT_SUPPORT`."""
    return bool(_saved()) or _is_announced()


def is_patched_by_eventlet() -> bool:
    """Return whether eventlet has patched the standard library."""
    return bool(getattr(sys.modules.get("eventlet.patcher"), "already_patched", None))


def is_patched_by_gevent() -> bool:
    """Return whether gevent has patched the threads of the standard library."""
    return "_thread" in _saved()


def keep_thread() -> None:
    """Never return if gevent or eventlet has patched the standard library; to be called by a thread that would end.

    Such a library changes the keys of `threading`'s table, from which an ending thread could not remove itself.
    """
    if is_active() or is_patched_by_eventlet():
        never = threading.Lock()
        never.acquire()
        never.acquire()


def _saved() -> dict[str, dict[str, Any]]:
    """Return what gevent has replaced: the originals by module and name."""
    return getattr(sys.modules.get("gevent.monkey"), "saved", {})


def _is_announced() -> bool:
    return _os.environ.get(GEVENT_VARIABLE, "").lower() in {"1", "true", "yes"}


_was_announced = _is_announced()
"""Whether `GEVENT_SUPPORT` was set when the job started."""


def import_gevent() -> None:
    """Import gevent if it will be used: gevent regards the thread that first imports it as the main thread."""
    if is_active():
        with contextlib.suppress(ImportError):
            importlib.import_module("gevent")


def prepare_imports() -> None:
    """Let this thread import modules while another thread imports them, if gevent has patched the standard library.

    The import locks are then gevent's. A thread that has to wait for such a lock needs a hub, gevent's event loop.
    Without one, it would create the hub during the wait. Creating a hub also imports modules, and `import` would raise
    a KeyError (seen with Python 3.11 and gevent 26.9).
    """
    gevent: Any = sys.modules.get("gevent")
    for _ in range(_MAX_ATTEMPTS if gevent is not None and _saved() else 0):
        with contextlib.suppress(KeyError):
            gevent.get_hub()
            return
        time.sleep(_ATTEMPT_INTERVAL)


def copies_in_use(*names: str) -> contextlib.AbstractContextManager[None]:
    """Let `import` find the copies of these modules in a block, which must be short: it affects all threads."""
    return _updated(sys.modules, {name: _copies.find()[name] for name in names})


def subprocess_in_use() -> contextlib.AbstractContextManager[None]:
    """Let all code start processes with the original `subprocess` in a block.

    gevent's version works only in the thread of gevent's main loop. A greenlet that starts a process in the meantime
    blocks that loop. And a job may have replaced the class `Popen` with a function or a mock.
    """
    module = vars(importlib.import_module("subprocess"))
    replaced = () if isinstance(module["Popen"], type) else ("Popen",)
    names = {*_saved().get("subprocess", ()), *replaced}
    return _updated(module, {name: getattr(_copies.find()["subprocess"], name) for name in names})


@contextlib.contextmanager
def _updated(table: dict[str, Any], changes: dict[str, Any]) -> Iterator[None]:
    """Give names in a table other values inside the block."""
    before = {name: table[name] for name in changes}
    table.update(changes)
    try:
        yield
    finally:
        table.update(before)


class _Module:
    """A module whose attributes are looked up as the docstring of this file describes."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        # No Python code of other modules: a debugger that stops here would show it (os.environ up to Python 3.10).
        if _was_announced or _saved() or is_patched_by_eventlet():
            return getattr(_copies.find()[self._name], attribute)
        return getattr(__import__(self._name), attribute)


class _Copies:
    """The modules with their original functions, made when they are first needed."""

    def __init__(self) -> None:
        self.modules: dict[str, ModuleType] = {}
        self.renew_lock()

    def renew_lock(self) -> None:
        """Replace the lock in a child process, where no thread would release the old one."""
        self._making = _with_originals(_thread).allocate_lock()

    def find(self) -> dict[str, ModuleType]:
        """Return the copies by name."""
        if not self.modules:
            with self._making:
                self.modules = self.modules or _make_copies()
        return self.modules


def _make_copies() -> dict[str, ModuleType]:
    """Return the modules; those that are written in Python are executed again.

    No copy replaces its module in `sys.modules`, where another thread could find it and gevent could patch it. Nor is a
    copy imported, because this thread might then have to wait for an import lock (`prepare_imports`).
    """
    copies = {name: _with_originals(importlib.import_module(name)) for name in _EXTENSIONS}
    copies["time"] = time

    def import_copies(name: str, *arguments: Any) -> ModuleType:
        return copies[name] if name in copies else __import__(name, *arguments)

    with _without_sentinel(copies):
        for name in _PYTHON:
            copies[name] = _executed_again(importlib.import_module(name), import_copies)
    if _main_thread is not None:
        _correct_main_thread(copies["threading"], _main_thread)
    return copies


@contextlib.contextmanager
def _without_sentinel(copies: dict[str, Any]) -> Iterator[None]:
    """Keep the copy of `threading` from replacing the lock that Python releases when this thread ends.

    Up to Python 3.12, `threading` does so when it is executed, because it regards this thread as the main thread. Code
    that waits for the end of this thread, such as Python's exit, would then wait without limit.
    """
    functions = vars(copies["_thread"])
    original = functions.get("_set_sentinel")
    if original is None:
        yield
        return
    functions["_set_sentinel"] = functions["allocate_lock"]
    yield
    functions["_set_sentinel"] = vars(copies["threading"])["_set_sentinel"] = original


def _with_originals(module: ModuleType) -> ModuleType:
    """Return a copy of a module with the original functions."""
    copy = ModuleType(module.__name__)
    vars(copy).update(vars(module))  # before `_saved` is read, because gevent saves a function before it replaces it
    vars(copy).update(_saved().get(module.__name__, {}))
    if is_patched_by_eventlet():
        name = _os.name if module.__name__ == "os" else module.__name__
        vars(copy).update(vars(_loaded_again(name)))
    return copy


def _loaded_again(name: str) -> Any:
    """Return a copy of a module that is written in C, with functions of its own; no other code can find the copy."""
    spec: Any = importlib.import_module(name).__spec__
    copy = spec.loader.create_module(spec)
    spec.loader.exec_module(copy)
    return copy


def _executed_again(module: ModuleType, import_module: Callable[..., ModuleType]) -> ModuleType:
    """Return a module with the code of another, whose `import` statements call a function."""
    spec: Any = module.__spec__
    name = _COPY_NAME.format(module.__name__)
    copy = sys.modules[name] = ModuleType(name)  # `enum` looks for the module there
    vars(copy).update(
        __file__=module.__file__, __package__=spec.parent, __builtins__={**vars(builtins), "__import__": import_module}
    )
    exec(spec.loader.get_code(module.__name__), vars(copy))  # noqa: S102 - code of the standard library
    return copy


def _original_json() -> ModuleType:
    """Return a copy of `json`, or the module that the job has put in its place."""
    module = importlib.import_module("json")
    try:
        return _executed_again(module, __import__)
    except Exception:  # noqa: BLE001 - that module may be anything, and the job must be able to import this one
        return module


def _correct_main_thread(copy: Any, ident: int) -> None:
    """Correct a copy of `threading`: up to Python 3.12, the copy regards the importing thread as the main thread."""
    main = copy.main_thread()
    with copy._active_limbo_lock:  # noqa: SLF001 - nothing public has the table of threads
        del copy._active[main.ident]  # noqa: SLF001 - likewise
        main._ident = ident  # noqa: SLF001 - likewise
        copy._active[ident] = main  # noqa: SLF001 - likewise


_copies = _Copies()
if not TYPE_CHECKING:
    os, select, socket = map(_Module, ("os", "select", "socket"))
    subprocess, threading = map(_Module, ("subprocess", "threading"))
    json = _original_json()
    time = _loaded_again("time")
    if hasattr(time, "clock_gettime"):
        time.monotonic = functools.partial(time.clock_gettime, time.CLOCK_MONOTONIC)

_main_thread = None if is_active() or is_patched_by_eventlet() else threading.main_thread().ident
"""The main thread's ident, or None if gevent or eventlet was active before this module was imported; the copies are
then made in that thread."""
if hasattr(_os, "register_at_fork"):  # another thread of the parent may have held the lock
    _os.register_at_fork(after_in_child=_copies.renew_lock)
