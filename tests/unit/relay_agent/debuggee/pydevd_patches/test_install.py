"""Facts about how the patches of pydevd come into a process."""

import os
from pathlib import Path

from relay_agent.debuggee.pydevd_patches.child_processes import follow_into_children


def test_path_of_children(monkeypatch):
    """The extension is found by children, before all else."""
    monkeypatch.setenv("PYTHONPATH", "/a/b")
    follow_into_children(None)
    ours, *rest = os.environ["PYTHONPATH"].split(os.pathsep)
    assert rest == ["/a/b"]
    assert (Path(ours) / "pydevd_plugins" / "extensions").is_dir()
