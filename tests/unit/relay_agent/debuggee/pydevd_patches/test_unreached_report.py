"""Facts about what an editor and the job's log show if the breakpoints of an attached editor are not hit."""

import itertools
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from relay_agent.debuggee.pydevd_patches import unreached_report
from relay_client.compare.console import with_formats
from relay_client.dap import DapClient
from relay_core.dap.messages import Request, arguments_of
from tests.support.jobs.processes import job
from tests.support.machine.deadline import DEADLINE

START = """
    import os, subprocess, threading, time
    from relay_agent.debuggee.debugger import debugger
    kept = []
    def child():
        command = [sys.executable, "-c", "import sys; sys.stdin.read()"]
        kept.append(subprocess.Popen(command, stdin=subprocess.PIPE))
    threading.Thread(target=lambda: (sys.stdin.readline(), os._exit(0)), name="loader", daemon=True).start()
"""
ARM = """
    print(debugger.arm(), flush=True)
"""
WAIT = """
    debugger.wait_for_attach(3600, threading.Event())
"""
CHILD = """
    child()
"""
COVERAGE = """
    import coverage
    kept.append(coverage.Coverage(data_file=None))
    kept[0].start()
"""
SETTRACE = """
    def trace(_frame, _event, _argument):
        pass
    worker = threading.Thread(target=lambda: sys.settrace(trace))
    worker.start()
    worker.join()
"""
TOOL = """
    sys.monitoring.use_tool_id(sys.monitoring.DEBUGGER_ID, "other")
"""
RUN = """
    while True:
        time.sleep(0.01)
"""
TRACE_FUNCTION = pytest.mark.skipif(sys.version_info >= (3, 12), reason="the debugger needs no trace function")


async def shown(code: str, *arguments: str, attaches: int = 1, breakpoints: str = "", **environment: str) -> list[str]:
    """Run a job, and return the lines of relay-agent that the editor and the job's log both show at each attach."""
    found = []
    async with job(START + code, *arguments, **environment) as running:
        port = int(await running.line())
        for _ in range(attaches):
            async with await DapClient.connect("127.0.0.1", port, within=DEADLINE) as client:
                await client.attach({breakpoints: [{"line": 1}]} if breakpoints else {}, within=DEADLINE)
                event = await client.wait_for_event(
                    "output", matching=lambda body: body["output"].startswith("relay-agent: "), within=DEADLINE
                )
                found.append(event["body"]["output"])
                await client.request("disconnect", within=DEADLINE)
        _, _, log = await running.finish()
    assert all(found.count(line) == log.count(line) for line in found), log
    return [line.removeprefix("relay-agent: ").rstrip("\n") for line in found]


@TRACE_FUNCTION
async def test_a_coverage_tool_that_takes_the_trace_function_is_named() -> None:
    """A tool written in C that replaces the debugger after the attach is named, with the way out."""
    (line,) = await shown(ARM + WAIT + COVERAGE + RUN)
    assert line.startswith("breakpoints in the main thread are not hit: coverage.CTracer has replaced the debugger.")
    assert "hint: run the job without it while you debug, or with Python 3.12 or later" in line


@TRACE_FUNCTION
async def test_a_call_of_settrace_in_a_thread_is_reported_with_its_place() -> None:
    """The call in another thread is found, too."""
    (line,) = await shown(ARM + WAIT + SETTRACE + RUN)
    assert line.startswith("breakpoints may not be hit in a thread that called sys.settrace() in <string>:")


@TRACE_FUNCTION
async def test_threads_that_cannot_be_traced_are_named() -> None:
    """Without pydevd's library, as on ARM, a thread that was running before the debugger started is named."""
    (line,) = await shown(ARM + WAIT + RUN, PYDEVD_LOAD_NATIVE_LIB="0")
    assert "are not hit in threads that started before the debugger attached: loader. hint: attach while" in line


@pytest.mark.parametrize("is_local", [True, False])
async def test_a_module_that_was_loaded_from_an_archive_is_named(tmp_path: Path, is_local: bool) -> None:
    """The file with the breakpoint may exist beside the archive, or on the laptop only."""
    source = tmp_path / "source" / "model.py"
    source.parent.mkdir()
    source.write_text("loss = 1\n")
    with zipfile.ZipFile(tmp_path / "job.pyz", "w") as archive:
        archive.write(source, "model.py")
    if not is_local:
        source.unlink()
    load = "\n    sys.path.insert(0, sys.argv[1]); import model\n"
    (line,) = await shown(ARM + WAIT + load + RUN, str(tmp_path / "job.pyz"), breakpoints=str(source))
    assert line == (
        f"breakpoints in {source} are not hit in module model, which was loaded from {tmp_path}/job.pyz/model.py. "
        "hint: run the job from unpacked source files while you debug"
    )


@pytest.mark.skipif(sys.version_info < (3, 12), reason="needs sys.monitoring")
async def test_a_tool_with_the_debuggers_id_is_named() -> None:
    """Where the debugger needs a tool id of `sys.monitoring`, the tool that already has it is named."""
    (line,) = await shown(TOOL + ARM + WAIT + RUN)
    assert line.startswith("breakpoints are not hit: 'other' uses the debugger's tool id of sys.monitoring (0). hint:")


async def test_a_coverage_tool_and_breakpoints_work_together_from_312(tmp_path: Path) -> None:
    """The way out that the line names is one: with Python 3.12, a breakpoint is hit while coverage is measured."""
    if sys.version_info < (3, 12):
        pytest.skip("the debugger needs the trace function")
    script = tmp_path / "train.py"
    script.write_text("import time\nwhile True:\n    time.sleep(0.01)\n")
    run = "\n    import runpy; runpy.run_path(sys.argv[1])\n"
    async with job(START + ARM + WAIT + COVERAGE + run, str(script)) as running:
        port = int(await running.line())
        async with await DapClient.connect("127.0.0.1", port, within=DEADLINE) as client:
            await client.attach({str(script): [{"line": 3}]}, within=DEADLINE)
            await client.wait_for_event("stopped", within=DEADLINE)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
async def test_older_children_are_named_at_each_attach() -> None:
    """A child that started before the debugger is named although children are followed; one that is followed is not."""
    arm = ARM.replace("arm()", "arm(follow_children=True)")
    lines = await shown(CHILD + arm + CHILD + WAIT + RUN, attaches=2)
    assert 1 == len(set(lines))
    assert lines[0].startswith("breakpoints are not hit in child process ")
    assert "which is not followed: it started before the debugger attached. hint: attach while" in lines[0]


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
async def test_a_child_that_starts_later_is_named_if_children_are_not_followed() -> None:
    """An editor without `subProcess` learns of a child that starts after it has attached."""
    (line,) = await shown(ARM + WAIT + CHILD + RUN)
    assert line.startswith("breakpoints are not hit in child process ")
    assert '. hint: set "subProcess": true in launch.json, and attach while the job waits (--debug-wait)' in line


def connected_debugger(lines: list[str]) -> SimpleNamespace:
    """Return what an examination uses of pydevd's debugger; its messages to the editor are appended to `lines`."""
    writer = SimpleNamespace(sock=SimpleNamespace(getpeername=lambda: ("127.0.0.1", 1)), add_command=lines.append)
    messages = SimpleNamespace(make_console_message=str)
    breakpoints = {"api_received_breakpoints": {}, "file_to_id_to_line_breakpoint": {}}
    return SimpleNamespace(writer=writer, cmd_factory=messages, **breakpoints)


def test_a_child_that_has_just_been_forked_is_not_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A child is named if it is still not followed an interval later: pydevd's own start in it takes a moment."""
    found = iter([[1, 2], [2, 3]])
    monkeypatch.setattr(unreached_report.children, "unfollowed_children", lambda _port: next(found))
    monkeypatch.setattr(unreached_report.child_processes, "is_active", lambda: True)
    lines: list[str] = []
    assert [True] == list(unreached_report._Examination(connected_debugger(lines), {})._children())
    (line,) = lines
    assert line.startswith("relay-agent: breakpoints are not hit in child process 2, which")


def test_children_that_end_at_once_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes for one short task each are reported once, with their number, although none is seen twice."""
    found = ([pid, pid + 1] for pid in itertools.count(0, 2))
    monkeypatch.setattr(unreached_report.children, "unfollowed_children", lambda _port: next(found))
    monkeypatch.setattr(unreached_report.child_processes, "is_active", lambda: False)
    lines: list[str] = []
    list(unreached_report._Examination(connected_debugger(lines), {})._children())
    (line,) = lines
    assert "child processes that end within a second (6 seen), which are not followed" in line


async def test_expressions_of_breakpoints_that_raise_are_reported_once(tmp_path: Path) -> None:
    """A condition and a log message that raise are one line each; other log messages are written, with formats."""
    file = tmp_path / "loop.py"
    file.write_text("import time\nn = 0\nwhile True:\n    n += 1\n    time.sleep(0.01)\n    pass\n")
    load = "\n    sys.path.insert(0, sys.argv[1]); import loop\n"
    wanted = [
        {"line": 4, "condition": "missing > 3"},
        {"line": 5, "logMessage": "{n + missing}"},
        {"line": 6, "logMessage": "at {n:04d} {n!r:>6}"},
    ]
    request: Request = {"seq": 1, "type": "request", "command": "setBreakpoints", "arguments": {"breakpoints": wanted}}
    texts: list[str] = []
    async with job(START + ARM + WAIT + load, str(tmp_path)) as running:
        port = int(await running.line())
        async with await DapClient.connect("127.0.0.1", port, within=DEADLINE) as client:
            changed = arguments_of(with_formats(request))["breakpoints"]
            await client.attach({str(file): changed}, within=DEADLINE)
            while "at 0020     20\n" not in texts:
                event = await client.wait_for_event("output", within=DEADLINE)
                texts += [event["body"]["output"]] if event["body"].get("category") != "telemetry" else []
            await client.request("disconnect", within=DEADLINE)
        await running.finish()
    error = "NameError: name 'missing' is not defined\n"
    assert [
        f"relay-agent: the condition of the breakpoint at loop.py:4 has no effect: {error}",
        f"relay-agent: the log message of the breakpoint at loop.py:5 has no effect: {error}",
    ] == [text for text in texts if not text.startswith("at ")]


@pytest.mark.parametrize(
    "statement", ["[n * i for i in (1, 2)]", "{i: n for i in (1, 2)}", "sum(n + i for i in (1, 2))", "(lambda: n)()"]
)
async def test_a_condition_is_not_reported_for_code_inside_the_line(tmp_path: Path, statement: str) -> None:
    """A comprehension or lambda lacks variables of its function; that the condition raises there is not reported."""
    file = tmp_path / "loop.py"
    train = f"def train(step):\n    n = 1\n    {statement}\n    time.sleep(0.01)\n"
    file.write_text(f"import time\n{train}number = 0\nwhile True:\n    number += 1\n    train(number)\n")
    load = "\n    sys.path.insert(0, sys.argv[1]); import loop\n"
    async with job(START + ARM + WAIT + load, str(tmp_path)) as running:
        port = int(await running.line())
        async with await DapClient.connect("127.0.0.1", port, within=DEADLINE) as client:
            wanted = [{"line": 4, "condition": "step == 3"}, {"line": 5, "condition": "missing == step"}]
            await client.attach({str(file): wanted}, within=DEADLINE)
            await client.wait_for_event("stopped", within=DEADLINE)
            event = await client.wait_for_event(
                "output", matching=lambda body: "loop.py" in body["output"], within=DEADLINE
            )
            await client.request("disconnect", within=DEADLINE)
        await running.finish()
    assert "loop.py:5" in event["body"]["output"]


async def test_a_file_that_is_not_loaded_is_reported(tmp_path: Path) -> None:
    """A file with breakpoints of which the running job has loaded no module for ten seconds is one line."""
    file = tmp_path / "elsewhere.py"
    file.write_text("loss = 1\n")
    (line,) = await shown(ARM + WAIT + RUN, breakpoints=str(file))
    assert line.startswith(
        f"no module of the job was loaded from {file} in 10 s, so its breakpoints are not hit. hint:"
    )


async def test_a_line_that_has_run_is_reported(tmp_path: Path) -> None:
    """A breakpoint above the line that the script is executing is one line, with the way out."""
    script = tmp_path / "train.py"
    script.write_text("first = 1\nwhile True:\n    time.sleep(0.01)\n")
    run = "\n    exec(compile(open(sys.argv[1]).read(), sys.argv[1], 'exec'))\n"
    code = (
        ARM + "\n    threading.Thread(target=lambda: debugger.wait_for_attach(3600, threading.Event())).start()" + run
    )
    (line,) = await shown(code, str(script), breakpoints=str(script))
    assert line.startswith("line 1 of train.py ran before its breakpoint was set. hint: let the job wait")
