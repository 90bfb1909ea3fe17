"""Facts about the start of the agent process."""

import pytest

from tests.support.jobs.processes import run_job

HALF_INSTALLED = """
import sys

if "node-agent" in sys.orig_argv:
    sys.modules["_ssl"] = None
"""
JOB = """
    import os
    from relay_agent.node.in_job.client import NodeClient
    from relay_agent.settings.model import DebugSettings
    target = {"port": 5678, "rank": 0, "pid": os.getpid(), "script": "train.py", "state": "running"}
    client = NodeClient({"hc": "myhc"}, target, DebugSettings(), answers={})
    client.start()
    print(client.attaching.hopeless.wait(3600), client.attaching.obstacle)
"""


@pytest.mark.parametrize("libraries", ["", "/opt/old/lib"])
async def test_module_that_cannot_be_imported(tmp_path, libraries):
    """The job receives the reason and a hint from its agent, which is not started again, and logs nothing itself."""
    (tmp_path / "sitecustomize.py").write_text(HALF_INSTALLED)
    status, [line], err = await run_job(
        JOB, PYTHONPATH=str(tmp_path), RELAY_NODE_DIR=str(tmp_path / "node"), LD_LIBRARY_PATH=libraries
    )
    assert (0, "") == (status, err)
    assert line.startswith("True the agent process cannot start: ")
    assert "_ssl" in line
    assert ("LD_LIBRARY_PATH may lead to other versions" in line) is bool(libraries)
    assert not [path for path in tmp_path.iterdir() if path.name == "node"]
