"""Facts about where a rank is stopped, as everybody who can see the job is shown."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from relay_client.dap import DapClient
from relay_core.compat import timeout
from tests.support.debuggers.debuggee import LINE
from tests.support.editors.stopped import Stopped
from tests.support.jobs.running import access, running_client, running_job, until_listed
from tests.support.machine.deadline import DEADLINE
from tests.support.machine.ports import free_port
from tests.support.machine.programs import program, run
from tests.support.network.relay import HC, LocalRelay

pytestmark = pytest.mark.e2e

SCRIPT = """\
import itertools, time
for number in itertools.count():
    square = number * number
    time.sleep(0.02)
    double = number + number
"""
CRASH = """\
import os, time
while not os.path.exists("crash"):
    time.sleep(0.02)
raise ValueError("no")
"""


async def test_another_client_sees_the_stop(relay: LocalRelay, tmp_path: Path) -> None:
    """`targets`, and the status of a client without the editor, show the place and follow steps and the detach."""
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    port, other = free_port(), free_port()
    send = access(relay, tmp_path, "send")
    elsewhere = {**send, "RELAY_CLIENT_DIR": str(tmp_path / "elsewhere")}

    async def shown(state: str) -> dict[str, Any]:
        """Return the target of `targets --json` once the table shows a state."""
        await until_listed(relay, tmp_path, state)
        found = await run("relay_client", "--hc", HC, "targets", "--json", env=send)
        return json.loads(found.stdout)["nodes"][0]["targets"][0]

    async def status(doing: str) -> None:
        async with timeout(DEADLINE):
            pattern = re.compile(rf"{re.escape(doing)} for \d+ s, held by ")
            while not pattern.search((await run("relay_client", "status", env=elsewhere)).stdout):
                pass

    async with (
        running_job(relay, script, "--port", str(port), "--wait", "0"),
        running_client(relay, tmp_path, "--ports", str(port)),
        program("relay_client", "--hc", HC, "--forward", f"{other}:{free_port()}", env=elsewhere) as second,
    ):
        await second.line("ready on")
        assert "running" == (await shown("running"))["kind"]
        async with await DapClient.connect("127.0.0.1", port, within=DEADLINE) as editor:
            await editor.attach({str(script): [{"line": LINE}]}, within=DEADLINE)
            session = Stopped(editor)
            await session.until_stopped()
            assert LINE == (await session.frame())["line"]
            found = await shown(f"stopped at train.py:{LINE}")
            assert ("stopped", f"train.py:{LINE}", port) == (found["kind"], found["place"], found["port"])
            await status(f"stopped at train.py:{LINE}")

            reached = await session.step()
            await status(f"stopped at train.py:{reached}")

            await session.run(script)
            await status("running")
            assert found["since"] < (await shown("running"))["since"]
        async with timeout(DEADLINE):
            while "holder" in await shown("running"):
                pass


async def test_place_that_no_editor_has_requested(relay: LocalRelay, tmp_path: Path) -> None:
    """The stop of an editor that does not ask for the stack has a place, and so has a crash that nobody debugs yet."""
    stopping, crashing = tmp_path / "train.py", tmp_path / "other" / "crash.py"  # with an agent of its own
    crashing.parent.mkdir()
    stopping.write_text(SCRIPT)
    crashing.write_text(CRASH)
    (crashing.parent / "crash").touch()
    port, other = free_port(), free_port()
    send = access(relay, tmp_path, "send")
    async with (
        running_job(relay, stopping, "--port", str(port), "--wait", "0"),
        running_job(relay, crashing, "--port", str(other), "--wait", "0", "--debug-on-crash", cwd=crashing.parent),
        running_client(relay, tmp_path, "--ports", str(port)),
        await DapClient.connect("127.0.0.1", port, within=DEADLINE) as editor,
    ):
        await editor.attach({str(stopping): [{"line": LINE}]}, within=DEADLINE)
        await editor.wait_for_event("stopped", within=DEADLINE)
        expected, places = {port: f"train.py:{LINE}", other: "crash.py:4"}, {}
        async with timeout(DEADLINE):
            while expected != places:
                found = json.loads((await run("relay_client", "status", "--json", env=send)).stdout)
                places = {one["port"]: one["place"] for node in found[0]["nodes"] for one in node["targets"]}


async def test_another_client_sees_the_crash(relay: LocalRelay, tmp_path: Path) -> None:
    """A rank that a debugger holds at an uncaught exception is shown as crashed, with the exception."""
    script = tmp_path / "train.py"
    script.write_text(CRASH)
    port = free_port()
    async with (
        running_job(relay, script, "--port", str(port), "--wait", "0", cwd=tmp_path),
        running_client(relay, tmp_path, "--ports", str(port)),
        await DapClient.connect("127.0.0.1", port, within=DEADLINE) as editor,
    ):
        await editor.attach({}, exceptions=["uncaught"], within=DEADLINE)
        (tmp_path / "crash").touch()
        stop = (await editor.wait_for_event("stopped", within=DEADLINE))["body"]
        assert ("exception", "ValueError", "ValueError: no") == (stop["reason"], stop["description"], stop["text"])
        async with timeout(DEADLINE):
            send = access(relay, tmp_path, "send")
            while "crashed: ValueError: no" not in (await run("relay_client", "--hc", HC, "targets", env=send)).stdout:
                pass
