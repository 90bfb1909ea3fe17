"""Facts about how the fixes come into a process, and what happens where they do not fit."""

import os
import sys
from pathlib import Path

import pytest

from relay_agent.debuggee.pydevd_patches import child_wait, follow_into_children, following, sending, waking
from relay_agent.prefetch import pydevd


@pytest.mark.parametrize(
    "install", [pydevd.install, sending.install, waking.install, child_wait.install, following.install]
)
def test_pydevd_of_another_make(monkeypatch, install):
    """Without the modules in which something is replaced nothing is, and nobody is told: debugging goes on as ever."""
    monkeypatch.setitem(sys.modules, "_pydevd_bundle", None)
    install()


def test_path_of_children(monkeypatch):
    """The extension is found by children, before all else."""
    monkeypatch.setenv("PYTHONPATH", "/a/b")
    follow_into_children(None)
    ours, *rest = os.environ["PYTHONPATH"].split(os.pathsep)
    assert rest == ["/a/b"]
    assert (Path(ours) / "pydevd_plugins" / "extensions").is_dir()
