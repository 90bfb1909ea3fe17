"""The system's directory for temporary files, without the module `tempfile`.

`tempfile.gettempdir()` stores its result for the whole process. If it were called here before the job sets TMPDIR, the
job's own temporary files would be in another directory than without relay-debug.
"""

from __future__ import annotations

from relay_agent.gevent_originals import os

__all__ = ["temporary_directory"]

_VARIABLES = ("TMPDIR", "TEMP", "TMP")
_DIRECTORIES = ("/tmp", "/var/tmp", "/usr/tmp")  # noqa: S108 - as in `tempfile`; callers make private directories


def temporary_directory() -> str:
    """Return the first directory of those that `tempfile` considers in which this process may create files."""
    named = [os.environ[name] for name in _VARIABLES if os.environ.get(name)]
    for path in (*map(os.path.abspath, named), *_DIRECTORIES):
        if os.path.isdir(path) and os.access(path, os.W_OK | os.X_OK):
            return str(path)
    return _DIRECTORIES[0]
