"""Facts about agents and a job whose names, states and answers contain every text of the corpus."""

import json
import re
from pathlib import Path

import pytest
import pytest_asyncio

from relay_client.mcp.server import FROM_THE_JOB
from tests.support.debuggers.pdb_jobs import looping, scripted
from tests.support.systems.hostile_fleet import FORGED, MARK, Shown, commands, event_files, hostile_fleet, mcp, page

pytestmark = pytest.mark.e2e
ONE_RUN = pytest.mark.xdist_group("forged-texts")

HOSTILE_JOB = f"""
import sys, threading, time
from pathlib import Path

FORGED = {FORGED!r} + "\\udc80"

class Forged(Exception):
    def __repr__(self):
        return FORGED.replace("\\n", " ")

def fail():
    raise Forged(FORGED)

def work(value=Forged()):
    print("\\x1b[31mred\\x1b[0m" + FORGED.replace("\\n", " ").replace("\\udc80", ""))
    time.sleep(0.01)

code = compile("while True: work()", FORGED, "exec").replace(co_name=FORGED)
threading.Thread(target=threading.Event().wait, name=FORGED.replace("\\udc80", ""), daemon=True).start()
Path(sys.argv[2]).write_text("1")
exec(code, {{"work": work}})
"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def of_commands(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Shown]:
    """What all commands have shown."""
    async with hostile_fleet(tmp_path_factory.mktemp("fleet")) as fleet:
        return await commands(fleet)


@ONE_RUN
def test_terminal(of_commands: dict[str, Shown]) -> None:
    """All that a command writes is printable, and no line looks like one of relay-client's own."""
    shown = of_commands["terminal"]
    assert [] == shown.harm
    assert {} == shown.lacks(*("host", "run", "script", "detail", "holder", "stopped_at", "uncaught"))
    assert {} == shown.lacks(*("file", "function", "thread", "how", "local_name", "local_value"))
    assert {} == shown.lacks(*("description", "operation", "inputs", "called", "problem", "collectives_error"))
    assert {} == shown.lacks(*("communicator", "remark", "ras_error"))
    assert {} == shown.lacks(*("value", "place", "value_error", "failure", "variable", "variable_value"))
    assert {} == shown.lacks(*("leaf", "leaf_kind", "note"))


@ONE_RUN
def test_log(of_commands: dict[str, Shown]) -> None:
    """So is the log of a relay-client."""
    shown = of_commands["log"]
    assert [] == shown.harm
    assert {} == shown.lacks("host", "detail", "holder", "uncaught", "ending", "replaced_by")


@ONE_RUN
def test_events(of_commands: dict[str, Shown]) -> None:
    """Each event is one line of printable JSON."""
    shown = of_commands["events"]
    assert [] == shown.harm
    assert {} == shown.lacks("host", "detail", "holder", "uncaught", "ending", "replaced_by")
    assert all(isinstance(json.loads(line), dict) for line in shown.texts)


async def test_page(tmp_path: Path) -> None:
    """The page's data is printable JSON, and its files have no text of an agent."""
    async with hostile_fleet(tmp_path) as fleet:
        shown = await page(fleet)
    assert [] == shown["page"].harm
    assert {} == shown["page"].lacks(
        "host", "run", "script", "detail", "holder", "file", "local_value", "value", "place"
    )
    assert all(isinstance(json.loads(text), dict) for text in shown["page"].texts)
    assert [] == [mark for text in shown["page files"].texts for mark in MARK.findall(text)]


async def test_mcp(tmp_path: Path) -> None:
    """A coding agent receives texts of an agent in the items of results only, each with their origin."""
    async with hostile_fleet(tmp_path) as fleet:
        shown = await mcp(fleet)
    assert [] == shown["MCP"].harm
    assert {} == shown["MCP"].lacks("host", "file", "function", "local_name", "local_value", "value", "failure")
    assert [] == [mark for text in shown["MCP notes"].texts for mark in MARK.findall(text)]
    results = [text for text in shown["MCP notes"].texts if "origin" in json.loads(text)]
    assert len(shown["MCP"].texts) == len(results)
    assert {FROM_THE_JOB} == {json.loads(text)["origin"] for text in results}


async def test_copies_of_event_files(tmp_path: Path) -> None:
    """The names of the copies are valid on every system, below the directory for them, and no program's options."""
    async with hostile_fleet(tmp_path) as fleet:
        shown = (await event_files(fleet))["file names"]
    assert [] == shown.harm
    assert {} == shown.lacks("host", "run")


async def test_prompt(tmp_path: Path) -> None:
    """At the prompt of the terminal debugger, a job's texts are printable lines; its output may also have colours."""
    commands = ["w", "locals", "p value", "whatis value", "p fail()", "fail()", "threads", *"nnn", "u", "l", "q"]
    async with looping(tmp_path, HOSTILE_JOB) as found:
        where = f"{found.script}:{found.line('    print')}"
        status, shown, errors = await scripted(found.port, *commands, breakpoints=[where], stop=False)
    assert 0 == status, errors
    assert 5 <= shown.count("cGFzdGVk")
    assert "\x1b[31mred\x1b[0m" in shown
    assert [] == suspicious(re.sub(r"\x1b\[[0-9;]*m|\r|\t", "", shown) + errors)


def suspicious(output: str) -> list[str]:
    """Return the lines that are not printable, or that an agent has forged."""
    lines = output.split("\n")
    return [line for line in lines if not line.isprintable() or line.startswith("relay-client: error: forged")]
