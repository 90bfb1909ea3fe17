"""Facts about versions of a file."""

import os
from pathlib import Path

from relay_core.program.file_state import FileState


def test_state_of_a_file(tmp_path: Path) -> None:
    """A version of the same size and age in another file is another state; there is none without a file."""
    path, other = tmp_path / "a.py", tmp_path / "b.py"
    assert FileState.of(path) is None
    for each in (path, other):
        each.write_text("x = 1\n")
        os.utime(each, ns=(1, 1))
    before = FileState.of(path)
    other.replace(path)
    assert before != FileState.of(path)
