"""What this project mends in pydevd, the part of debugpy that is inside the job, and adds to it, while it is at work.

Each fix replaces a function of pydevd's, and leaves everything as it is where that function does not exist any more.
Forked children inherit what is replaced; for those that are started anew see the folder `followed`.
"""

from __future__ import annotations

import functools
import os
from pathlib import Path

from relay_agent.debuggee.pydevd_patches import sending, waking
from relay_agent.prefetch import pydevd
from relay_agent.python_path import in_front

__all__ = ["follow_into_children", "install"]


@functools.cache
def install() -> None:
    """Mend this process's pydevd, and that of its forked children; what is replaced stays replaced."""
    sending.install()
    waking.install()
    pydevd.install()


def follow_into_children() -> None:
    """Let Python processes that this one starts anew do the same, if debugpy follows them."""
    os.environ["PYTHONPATH"] = in_front(Path(__file__).with_name("child_plugin"), os.environ.get("PYTHONPATH"))
