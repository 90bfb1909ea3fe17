"""What distinguishes two versions of a file, without reading it; programs compare it at intervals."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple


class FileState(NamedTuple):
    """A version of a file."""

    modified: int
    """In nanoseconds."""
    size: int
    inode: int

    @classmethod
    def of(cls, path: Path) -> FileState | None:
        """Return the state of a file; None if it cannot be found, for example while an editor is replacing it."""
        try:
            found = path.stat()
        except OSError:
            return None
        return cls(found.st_mtime_ns, found.st_size, found.st_ino)
