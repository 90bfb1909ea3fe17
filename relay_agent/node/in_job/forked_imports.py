"""Lets a forked child import the modules that another thread of its parent was importing at the moment of the fork.

Python has a lock for each module that is being imported. A forked child inherits these locks, but not the threads that
hold them, so its import of such a module never returns. The helper thread imports modules while it answers a request:
about 200 at the first attach. Without this module, up to 26 of 2,000 children that were forked around an attach, and
that imported one module each, hung.

The handler discards, in the child, the locks and the unfinished modules of threads that do not exist there. An import
then begins anew. It applies to the job's threads, too: in the child, nobody can complete what they have begun either,
so the only import that changes is one that would never return.

What was rejected:

  * A lock around the imports of the helper thread, which a fork waits for: each fork of the job would wait for the rest
    of an import, 0.2 s at the first attach and seconds with slow storage. A module imports others while its own lock is
    held, so no step is shorter. Without a time limit, this can also be a deadlock, if the job forks while it imports a
    module that the helper thread needs. With a time limit, the child hangs again after it.
  * To import everything at the start: it takes 0.2 s in each job, and nearly no job is debugged.

The handler waits for nothing, takes no lock and imports nothing, as every fork handler of this package. It costs a few
microseconds for each fork.

Invariants: the locks of the forking thread stay, because its imports continue in the child; so do the modules that they
protect. Submodules of an unfinished package are discarded with it: the package that replaces it would otherwise not
have them as attributes.

What is ugly and stays: `importlib` has no public access to its locks. A version of Python without the names used here
behaves as if this module did not exist. With gevent or eventlet, locks belong to greenlets, which do exist in the
child, so nothing is discarded.
"""

from __future__ import annotations

import _frozen_importlib
import _thread
import functools
import os
import sys
from typing import Any

from relay_agent.job.gevent_originals import is_active, is_patched_by_eventlet

_locks: dict[str, Any] = getattr(_frozen_importlib, "_module_locks", {})
"""Weak references to importlib's locks, by the names of the modules."""


@functools.cache
def install() -> None:
    """Register the fork handler, once per process tree; before that of any module that a child may import."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_discard_lost_imports)


def _discard_lost_imports() -> None:
    """Discard, in a forked child, the import locks and unfinished modules of threads that do not exist there."""
    if is_active() or is_patched_by_eventlet():
        return
    thread, kept, unfinished = _thread.get_ident(), set(), []
    for name, reference in list(_locks.items()):
        owner = getattr(reference(), "owner", None)
        if owner == thread:
            kept.add(name)
            continue
        # Also a lock without an owner: a thread may have been about to become the owner, and holds the lock's own lock.
        _locks.pop(name, None)
        if owner is not None and _is_unfinished(name):
            unfinished.append(name)
    for package in unfinished:
        for name in list(sys.modules):
            if (name == package or name.startswith(f"{package}.")) and name not in kept:
                del sys.modules[name]


def _is_unfinished(name: str) -> bool:
    spec = getattr(sys.modules.get(name), "__spec__", None)
    return bool(getattr(spec, "_initializing", False))
