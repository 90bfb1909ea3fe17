"""Facts about new code for the main script of running ranks, which was edited after they had started."""

import asyncio
from pathlib import Path

import pytest

from relay_core.compat import timeout
from tests.support.jobs.push_job import push_from, until_logged
from tests.support.jobs.running import ranks_launcher, running_job, running_ranks, until_registered
from tests.support.machine.deadline import DEADLINE
from tests.support.machine.ports import consecutive_ports
from tests.support.network.relay import LocalRelay

pytestmark = pytest.mark.e2e

PLAIN = """\
import os
import time
from pathlib import Path

LR = 0.7
rank = os.environ["RELAY_RANK"]


def scaled(w):
    time.sleep(0.01)
    return w * LR


Path(f"ready-{rank}").touch()
with open(f"log-{rank}", "w", buffering=1) as log:
    while True:
        print(scaled(1), file=log)
"""


async def test_main_script(relay: LocalRelay, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Constants are set, first in one rank and then in all, and a name that nothing defines refuses the push."""
    (script := tmp_path / "plain.py").write_text(PLAIN)
    monkeypatch.chdir(tmp_path)
    port = str(consecutive_ports(3)[0])
    async with running_ranks(relay, script, 3, "--port", port, "--debug-allow-edit"):
        script.write_text(PLAIN.replace("0.7", "0.8"))
        first = await push_from(relay, tmp_path, tmp_path, "plain.py", "--ranks", "1")
        again = await push_from(relay, tmp_path, tmp_path, "plain.py", "--ranks", "1")
        both = await push_from(relay, tmp_path, tmp_path, "plain.py")
        await until_logged(tmp_path, "0.8", range(3))
        script.write_text(PLAIN.replace("w * LR", "w * K"))
        typo = await push_from(relay, tmp_path, tmp_path, "plain.py")
        print(first, again, both, typo, sep="\n")
    assert "rank 1: LR = 0.8" in first.stdout.splitlines()
    assert "plain.py: nothing to replace: rank 1 is already executing this code" in again.stdout
    assert "plain.py: replaced in ranks 0,2 while all were held, perhaps not at the same step" in both.stdout
    assert ["rank 1: nothing to replace", "ranks 0,2: LR = 0.8"] == sorted(both.stdout.splitlines()[1:3])
    assert (
        "error: ranks 0-2: scaled() uses K, which would stay undefined; nothing was changed in any rank. "
        "hint: push the file without this use, or restart the job\n"
    ) in typo.stderr


async def test_rank_that_has_not_started(relay: LocalRelay, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A rank that waits for a debugger before its program starts has not loaded the file."""
    (script := tmp_path / "plain.py").write_text(PLAIN)
    monkeypatch.chdir(tmp_path)
    options = ("--port", str(consecutive_ports(2)[0]), "--debug-allow-edit", "--debug-ranks", "1")
    async with running_job(relay, script, *options, launcher=ranks_launcher(2)):
        async with timeout(DEADLINE):
            while not (tmp_path / "ready-0").exists():
                await asyncio.sleep(0.05)
        await until_registered(relay, tmp_path, 2)
        refused = await push_from(relay, tmp_path, tmp_path, "plain.py")
        print(refused)
    assert (
        "error: rank 1: the program has not started yet, and has not loaded plain.py (rank 1 is waiting for a debugger)"
        "; nothing was changed in any rank"
    ) in refused.stderr
    assert "--as" not in refused.stderr
