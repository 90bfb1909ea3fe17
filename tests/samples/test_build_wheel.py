"""Facts about the wheel that samples put into images."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.jobs.processes import ROOT
from tests.support.machine.deadline import DEADLINE
from tests.support.machine.ports import free_port
from tests.support.machine.programs import environment

pytestmark = pytest.mark.e2e


def test_no_network(tmp_path: Path) -> None:
    """Without a package index, the build fails at the first attempt to reach one, with pip's output and a hint."""
    offline = {"PIP_CONFIG_FILE": "/dev/null", "PIP_FIND_LINKS": "", "PIP_EXTRA_INDEX_URL": ""}
    done = subprocess.run(
        [sys.executable, str(ROOT / "samples/shared/build_wheel.py"), str(tmp_path)],
        env=environment(**offline, PIP_INDEX_URL=f"http://127.0.0.1:{free_port()}/simple"),
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert 1 == done.returncode
    assert "hint: without a network, build the wheel elsewhere and add --wheel FILE" in done.stderr
    assert "Retrying" not in done.stderr
