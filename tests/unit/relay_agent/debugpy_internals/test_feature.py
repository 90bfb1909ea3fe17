"""Facts about a debugpy without one of the private functions that relay-debug uses."""

import re
import sys
from pathlib import Path

import pytest

from relay_agent.debugpy_internals import table
from relay_agent.debugpy_internals.feature import CHECKED_VERSIONS, Feature, Internal
from relay_client.dap import DapClient
from tests.support.jobs.processes import ROOT, job
from tests.support.machine.deadline import DEADLINE

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

CODE = """
    import os, runpy, threading
    from tests.support.debuggers.renamed_debugpy import rename
    rename(*sys.argv[2].split())
    from relay_agent.debuggee.debugger import debugger
    from relay_agent.node.in_job.reach_agent import _unpatched_by_pydevd
    for _ in range(int(sys.argv[3])):
        print(debugger.arm(), flush=True)
        debugger.wait_for_attach(3600, threading.Event())
        runpy.run_path(sys.argv[1])
        sys.stdin.readline()
        debugger.release()
    with _unpatched_by_pydevd():
        pass
"""
PROGRAM = """\
import os
import sys
from relay_agent.debuggee.debugger import debugger

def work(number):
    square = number * number
    double = number + number
    return square + double

debugger.break_at(sys._getframe())
child = os.fork()
if not child:
    os._exit(0)
os.waitpid(child, 0)
work(7)
"""
BREAKPOINT = 6
"""The line of `square = ...`."""
NOT_USED = {
    table.COMPILED_CALLER,
    table.DIALLING,
    table.GEVENT,
    table.JOB_PORT,
    table.POST_MORTEM,
    table.PUSHED_LINES,
    table.RECOVERY,
    table.SNAPSHOTS,
    table.THREAD_STATE,
}
"""Features that this job does not need."""
NOT_NOTICED = {table.OUTPUT, table.HIDDEN_THREADS}
"""Features whose absence cannot be seen from inside the process."""
NOT_MISSED = {
    (table.REACHING, "trace_dispatch"),  # not read where pydevd reaches all threads on its own
    (table.UNCAUGHT, "trace_dispatch"),  # read when a program begins under `relay-agent run`
    (table.FORKING, "additional_info"),  # set in any case
    (table.FORKING, "_redirect_to"),  # set after a session with `redirectOutput`, as the next one
    (table.RELEASE, "_redirect_to"),
    (table.CHILD_WAIT, "pydb_disposed"),  # read while it waits
    (table.DATA_BREAKPOINTS, "suspended_frames_manager"),  # read when an editor selects a value
    (table.UNREACHED, "is_logpoint"),  # set at a logpoint with `@hold`
    (table.UNSUPPORTED, "writer"),  # read at a request that debugpy does not support
}
"""What this job does not use of features that it uses."""
ABOUT_LATER_SESSIONS = {table.RELEASE, table.RESTART, table.STATE}
"""Features that matter when a debugger has left."""


def last_name(internal: Internal) -> str:
    return re.split("[:.]", internal.name)[-1]


NAMES = {last_name(internal): None for feature in table.FEATURES for internal in feature.internals}


def features_with(name: str) -> list[Feature]:
    return [feature for feature in table.FEATURES if name in map(last_name, feature.internals)]


NOT_RENAMED = {"listen", "os", "time"}
"""A public function, and modules that debugpy imports: these keep their names."""
USED = [name for name in NAMES if name not in NOT_RENAMED and not NOT_USED.issuperset(features_with(name))]
"""What this job needs, and of what it does not need, names that both have."""


@pytest.mark.parametrize("name", USED)
async def test_session_without(tmp_path: Path, name: str):
    """A session stops, shows variables, steps and continues, as does the next one; what is missing is logged once."""
    err = await output_of_sessions_without(tmp_path, name)
    for feature in features_with(name):
        expected = 0 if feature in NOT_USED | NOT_NOTICED or (feature, name) in NOT_MISSED else 1
        line = re.escape(f"relay-agent: {feature.without}: debugpy ") + r"\S+ has unexpected internals \("
        assert expected == len(re.findall(line, err)), err


async def test_session_without_what_it_does_not_use(tmp_path: Path):
    """A session works without any of the names that only other jobs need, and nothing is logged about them."""
    unused = NAMES.keys() - USED - NOT_RENAMED
    assert "unexpected internals" not in await output_of_sessions_without(tmp_path, *unused)


async def output_of_sessions_without(tmp_path: Path, *names: str) -> str:
    """Debug a program with a debugpy that lacks these names, as often as they require, and return its stderr."""
    sessions = 2 if any(set(features_with(name)) & ABOUT_LATER_SESSIONS for name in names) else 1
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    async with job(CODE, str(script), " ".join(names), str(sessions)) as running:
        for _ in range(sessions):
            async with await DapClient.connect("127.0.0.1", int(await running.line()), within=DEADLINE) as client:
                await use(client, script)
            assert running.process.stdin is not None
            running.process.stdin.write(b"\n")
        status, _, err = await running.finish()
    assert 0 == status
    return err


IMPORT = re.compile(r"^ *from ((?:_pydev|pydevd|debugpy\.server)[\w.]*) import ([\w, ]+)", re.MULTILINE)
SOURCES = [path for path in (ROOT / "relay_agent").rglob("*.py") if "debugpy_internals" not in path.parts]


@pytest.mark.parametrize(
    "path", [path for path in SOURCES if IMPORT.search(path.read_text())], ids=lambda path: path.name
)
def test_table_is_complete(path: Path):
    """What a source imports from pydevd is in the table, or is a module in which something of the table is."""
    listed = {use.name for feature in table.FEATURES for use in feature.internals}
    for module, names in IMPORT.findall(path.read_text()):
        for name in names.split(","):
            word = name.strip().partition(" ")[0]
            assert [use for use in listed if f"{module}:{word}" in use or f"{module}.{word}:" in use], word


def test_documented_versions():
    """The oldest version that was checked is the oldest that pip may install."""
    requirements = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    assert f"debugpy>={CHECKED_VERSIONS[0]}" in requirements


async def use(client: DapClient, script: Path) -> None:
    """Debug the program with one breakpoint."""
    await client.attach({str(script): [{"line": BREAKPOINT}]}, within=DEADLINE)
    thread = {"threadId": (await client.wait_for_event("stopped", within=DEADLINE))["body"]["threadId"]}
    await client.request("continue", thread, within=DEADLINE)
    await client.wait_for_event("stopped", within=DEADLINE)
    assert {"number": "7"} == await variables(client, thread)
    await client.request("next", thread, within=DEADLINE)
    await client.wait_for_event("stopped", within=DEADLINE)
    assert {"number": "7", "square": "49"} == await variables(client, thread)
    await client.request("continue", thread, within=DEADLINE)
    await client.request("disconnect", {"terminateDebuggee": False}, within=DEADLINE)


async def variables(client: DapClient, thread: dict[str, int]) -> dict[str, str]:
    top = (await client.request("stackTrace", {**thread, "levels": 1}, within=DEADLINE))["stackFrames"][0]
    scopes = (await client.request("scopes", {"frameId": top["id"]}, within=DEADLINE))["scopes"]
    reference = {"variablesReference": scopes[0]["variablesReference"]}
    found = (await client.request("variables", reference, within=DEADLINE))["variables"]
    return {variable["name"]: variable["value"] for variable in found}
