"""Facts about new code for running ranks, which wait for each other in every step as in a collective."""

import asyncio
import hashlib
import json
import re
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from relay_client.dap import DapClient
from relay_core.compat import timeout
from tests.support.jobs.push_job import FIXED, MODEL, RANKS, push, push_from, training, until_logged
from tests.support.jobs.running import (
    access,
    ranks_launcher,
    running_client,
    running_job,
    until_listed,
    until_registered,
)
from tests.support.machine.deadline import DEADLINE
from tests.support.machine.ports import consecutive_ports
from tests.support.machine.programs import Finished, Program, program
from tests.support.network.relay import HC, LocalRelay

pytestmark = pytest.mark.e2e

REPLACED = "replaced in ranks 0-3 while all were held, perhaps not at the same step"
"""Without torch, the ranks cannot report how many collective operations they have begun."""


def first_step(directory: Path, rank: int, text: str) -> int:
    """Return the first step of a rank whose line has a text."""
    lines = (directory / f"log-{rank}").read_text().splitlines()
    return int(next(line for line in lines if text in line).split()[0])


def last_values(directory: Path) -> list[list[str]]:
    """Return the words of the last line of each rank."""
    return [(directory / f"log-{rank}").read_text().splitlines()[-1].split() for rank in range(RANKS)]


async def test_fix_changes_the_running_job(relay: LocalRelay, tmp_path: Path):
    """All ranks execute the new code from the same step on; their variables keep their values; the log has the user."""
    port = consecutive_ports(RANKS)[0]
    async with training(relay, tmp_path, "--port", str(port), "--debug-allow-edit") as job:
        pushed = await push(relay, tmp_path, FIXED)
        assert (
            0,
            [
                f"model.py: {REPLACED}; takes effect at the next call to train_step",
                "ranks 0-3: train_step(), Net.forward(), LR = 0.2, Net.scaled() (new)",
            ],
        ) == (pushed.status, pushed.stdout.splitlines()), pushed.stderr
        await until_logged(tmp_path, "new")
        assert 1 == len({first_step(tmp_path, rank, "new") for rank in range(RANKS)})
        for step, kind, value, calls in last_values(tmp_path):
            assert ("new", "30", int(step) + 1) == (kind, value, int(calls))
        digest = hashlib.sha256(FIXED.encode()).hexdigest()[:12]
        logged = await job.line("replaced the code in")
        assert f"{tmp_path / 'model.py'} (sha256 {digest}: train_step(), Net.forward()" in logged
        assert re.search(r"rank \d: \S+@\S+ replaced", logged)
        assert MODEL == (tmp_path / "model.py").read_text()
        same = await push(relay, tmp_path, FIXED)
        assert (0, "model.py: nothing to replace: ranks 0-3 are already executing this code\n") == (
            same.status,
            same.stdout,
        )


@pytest.mark.parametrize("is_cached", [True, False])
async def test_file_that_the_job_shares(relay: LocalRelay, tmp_path: Path, is_cached: bool):
    """If the job's own file was edited and pushed, a constant in its bytecode changes; otherwise it has a line."""
    port = consecutive_ports(RANKS)[0]
    bytecode = {"PYTHONDONTWRITEBYTECODE": "" if is_cached else "1"}
    async with training(relay, tmp_path, "--port", str(port), "--debug-allow-edit", **bytecode):
        await until_logged(tmp_path, "old")
        edited = MODEL.replace("old", "new").replace("LR = 0.1", "LR = 0.2")
        (tmp_path / "model.py").write_text(edited)
        pushed = await push(relay, tmp_path, edited)
        assert 0 == pushed.status, pushed.stderr
        lines = pushed.stdout.splitlines()
        calls = "ranks 0-3: calls keeps the value assigned by the process; the file has 0"
        constant = ["ranks 0-3: train_step(), LR = 0.2"]
        if not is_cached:
            constant = ["ranks 0-3: train_step()", "ranks 0-3: LR keeps 0.1; the file has 0.2"]
        assert [*constant, calls] == lines[1:-1]
        assert lines[-1].startswith("ranks 0-3: the file on the node may have changed since the process loaded it")
        await until_logged(tmp_path, "new")


async def test_constant_alone_changes_in_the_same_call(relay: LocalRelay, tmp_path: Path):
    """If only a constant changes, all ranks are held at a call beside its users, which then reads the new value."""
    port = consecutive_ports(RANKS)[0]
    async with training(relay, tmp_path, "--port", str(port), "--debug-allow-edit"):
        await push(relay, tmp_path, FIXED)
        await until_logged(tmp_path, "new 30")
        pushed = await push(relay, tmp_path, FIXED.replace("LR = 0.2", "LR = 0.4"))
        assert (
            0,
            [f"model.py: {REPLACED}; takes effect in the current call to train_step", "ranks 0-3: LR = 0.4"],
        ) == (
            pushed.status,
            pushed.stdout.splitlines(),
        ), pushed.stderr
        await until_logged(tmp_path, "new 60")
        assert 1 == len({first_step(tmp_path, rank, "new 60") for rank in range(RANKS)})


async def test_file_that_has_the_same_path_on_the_node(relay: LocalRelay, tmp_path: Path):
    """The very file that the job has loaded is found from any directory and through links, as by an editor."""
    port = consecutive_ports(1)[0]
    job, start = tmp_path / "job", tmp_path / "start"
    job.mkdir()
    start.mkdir()
    (tmp_path / "link").symlink_to(job)
    options = ("--port", str(port), "--debug-allow-edit")
    async with training(relay, job, *options, ranks=1, cwd=start):
        await until_logged(job, "old", [0])
        (job / "model.py").write_text(MODEL.replace("old", "new"))
        for cwd, name in ((job, "model.py"), (tmp_path, "link/model.py"), (start, "../job/model.py")):
            pushed = await push_from(relay, tmp_path, cwd, name)
            assert 0 == pushed.status, pushed.stderr
        await until_logged(job, "new", [0])


async def test_syntax_error_changes_nothing(relay: LocalRelay, tmp_path: Path):
    """A file that does not compile, or a new name that cannot be defined, changes no rank; the next push succeeds."""
    port = consecutive_ports(RANKS)[0]
    async with training(relay, tmp_path, "--port", str(port), "--debug-allow-edit"):
        broken = await push(relay, tmp_path, FIXED.replace("calls += 1", "calls +="))
        assert (1, "") == (broken.status, broken.stdout)
        assert "error: ranks 0-3: SyntaxError: invalid syntax (model.py, line " in broken.stderr
        assert "nothing was changed in any rank" in broken.stderr
        undefined = await push(relay, tmp_path, FIXED + "@missing\ndef more(): pass\n")
        assert "NameError: name 'missing' is not defined; nothing was changed in any rank" in undefined.stderr
        assert (await push(relay, tmp_path, FIXED)).stdout.startswith(f"model.py: {REPLACED}")
        await until_logged(tmp_path, "new")
        assert all("30" == value for _, _, value, _ in last_values(tmp_path))


async def test_one_rank_that_cannot(relay: LocalRelay, tmp_path: Path):
    """If a chosen rank has not loaded the file, no rank is changed; without this rank, the others are."""
    port = consecutive_ports(RANKS)[0]
    options = ("--port", str(port), "--debug-allow-edit")
    async with training(relay, tmp_path, *options, WITHOUT_MODEL="2"):
        await until_logged_once(tmp_path, (0, 1, 3))
        refused = await push(relay, tmp_path, FIXED)
        assert 1 == refused.status
        assert "error: rank 2: no module was loaded from model.py; nothing was changed in any rank" in refused.stderr
        late = await push(relay, tmp_path, FIXED, "--ranks", "0,1,3", "--timeout", "2s")
        assert 14 == late.status  # they wait for rank 2
        assert "the ranks did not reach the same call: ranks 0-1,3 " in late.stderr
        assert (
            "; nothing was changed in any rank. hint: use --timeout to wait, and to hold ranks, longer" in late.stderr
        )
        pushed = await push(relay, tmp_path, FIXED, "--ranks", "0,1,3", "--now", "--json")
        found = json.loads(pushed.stdout)
        assert [([0, 1, 3], True)] == [(process["ranks"], process["replaced"]) for process in found["processes"]]
        assert not found["same_step"]


async def until_logged_once(directory: Path, ranks: Sequence[int]) -> None:
    """Wait until some ranks have executed a step."""
    async with timeout(DEADLINE):
        while not all((directory / f"log-{rank}").exists() for rank in ranks):
            await asyncio.sleep(0.05)


async def test_job_that_does_not_allow_it(relay: LocalRelay, tmp_path: Path):
    """Without --debug-allow-edit a push is refused, with the hint how to allow it."""
    port = consecutive_ports(RANKS)[0]
    async with training(relay, tmp_path, "--port", str(port)):
        refused = await push(relay, tmp_path, FIXED)
        assert (3, "") == (refused.status, refused.stdout)
        assert "error: the job does not allow its code to be replaced; nothing was changed" in refused.stderr
        assert "hint: start the job with --debug-allow-edit" in refused.stderr


async def test_line_in_the_editor(relay: LocalRelay, tmp_path: Path):
    """An editor with another version of a file shows that it differs, and after the push that it is the job's."""
    port = consecutive_ports(RANKS)[0]
    options = ("--port", str(port), "--debug-allow-edit")
    async with training(relay, tmp_path, *options), running_client(relay, tmp_path, "--ports", str(port)):
        local = tmp_path / "local" / "model.py"
        local.parent.mkdir()
        local.write_text(FIXED)

        def has(text: str) -> Callable[[dict[str, Any]], bool]:
            return lambda body: text in body.get("output", "")

        async with await DapClient.connect("127.0.0.1", port, within=DEADLINE) as editor:
            mappings = [{"localRoot": str(local.parent), "remoteRoot": str(tmp_path)}]
            unused = {str(local): [{"line": FIXED.splitlines().index("    return 1") + 1}]}
            await editor.attach(unused, pathMappings=mappings, justMyCode=False, within=DEADLINE)
            await editor.wait_for_event("output", matching=has("model.py differs from the job's file"), within=DEADLINE)
            pushed = await push(relay, tmp_path, FIXED)
            assert 0 == pushed.status, pushed.stderr
            equal = has("after a push, model.py matches the code that the job on ")
            await editor.wait_for_event("output", matching=equal, within=DEADLINE)
            await editor.request("disconnect", {"terminateDebuggee": False}, within=DEADLINE)
        async with await DapClient.connect("127.0.0.1", port, within=DEADLINE) as editor:
            line = FIXED.splitlines().index("        return x * self.weight * int(LR * 50)") + 1
            await editor.attach(
                {str(local): [{"line": line}]}, pathMappings=mappings, justMyCode=False, within=DEADLINE
            )
            thread = (await editor.wait_for_event("stopped", within=DEADLINE))["body"]["threadId"]
            stack = await editor.request("stackTrace", {"threadId": thread, "levels": 1}, within=DEADLINE)
            assert ("scaled", line) == tuple(stack["stackFrames"][0][key] for key in ("name", "line"))
            await editor.request("disconnect", {"terminateDebuggee": False}, within=DEADLINE)


MAIN_LOOP = """\
import time
from pathlib import Path

def train_step(step):
    time.sleep(0.01)
    return f"{step} old"

def main():
    import os
    name = f"log-{os.environ['RELAY_RANK']}"
    with open(Path(__file__).parent / name, "w", buffering=1) as log:
        step = 0
        while True:
            print(train_step(step), file=log)
            step += 1

if __name__ == "__main__":
    main()
"""


async def test_main_loop(relay: LocalRelay, tmp_path: Path):
    """A main loop is named by each push, and is not waited for, whether or not other code changes."""
    (script := tmp_path / "train.py").write_text(MAIN_LOOP)
    (local := tmp_path / "local").mkdir()
    port = consecutive_ports(2)[0]
    options = ("--debug-ranks", "none", "--debug-allow-edit", "--port", str(port))
    note = "main() is running at train.py:14 in MainThread: this call executes the old code until it returns"

    async def push_text(text: str, *arguments: str) -> Finished:
        (local / "train.py").write_text(text)
        return await push_from(relay, tmp_path, local, "train.py", *arguments)

    async with running_job(relay, script, *options, launcher=ranks_launcher(2), cwd=tmp_path) as job:
        await job.line("listening on 'myhc'")
        await until_logged(tmp_path, "old", (0, 1))
        alone = await push_text(MAIN_LOOP.replace("step += 1", "step += 2"), "--timeout", "1h")
        assert (14, "") == (alone.status, alone.stdout)
        assert (
            "error: the ranks did not reach the same call: ranks 0-1 are running main(), which no Python loop calls "
            "again; nothing was changed in any rank. hint: use --now to replace the code in each rank immediately"
        ) in alone.stderr
        for number, ranks in enumerate(("1", "all", "all"), 2):
            text = MAIN_LOOP.replace("old", f"new {number}").replace("step += 1", f"step += {number}")
            pushed = await push_text(text, "--ranks", ranks, "--json")
            found = json.loads(pushed.stdout)
            assert ("train_step", "") == (found["function"], pushed.stderr.partition("waiting")[1])
            assert [[note]] == [process["kept"] for process in found["processes"]]
        same = await push_text(text)
    first = "train.py: nothing was replaced in ranks 0-1, but parts of the file may not be in effect"
    assert [first, f"ranks 0-1: {note}"] == same.stdout.splitlines()


async def test_rank_that_waits_for_a_debugger(relay: LocalRelay, tmp_path: Path):
    """If a rank waits for a debugger, the code is replaced immediately, and the output names this rank."""
    calls = "import relay_agent, os\ndef train_step(step):\n    if os.environ['RELAY_RANK'] == '0' and step == 9:\n"
    source = MAIN_LOOP.replace("def train_step(step):\n", f"{calls}        relay_agent.breakpoint()\n")
    (script := tmp_path / "train.py").write_text(source)
    (local := tmp_path / "local").mkdir()
    (local / "train.py").write_text(source.replace("old", "new"))
    port = consecutive_ports(2)[0]
    options = ("--debug-ranks", "none", "--debug-allow-edit", "--port", str(port))
    async with running_job(relay, script, *options, launcher=ranks_launcher(2), cwd=tmp_path) as job:
        await job.line("waiting up to")
        await until_registered(relay, tmp_path, 2)
        pushed = await push_from(relay, tmp_path, local, "train.py")
        waiting = "rank 0 is waiting for a debugger (breakpoint() at train.py:7)"
        expected = f"train.py: replaced in ranks 0-1 immediately, because {waiting}"
        assert [expected] == pushed.stdout.splitlines()[:1], pushed.stderr
        await until_logged(tmp_path, "new", (1,))


async def test_rank_that_is_stopped_above_the_definitions(relay: LocalRelay, tmp_path: Path):
    """It refuses the push, and no rank gets the code, because the rank would then execute its old definitions."""
    (script := tmp_path / "train.py").write_text(MAIN_LOOP)
    (local := tmp_path / "local").mkdir()
    (local / "train.py").write_text(MAIN_LOOP.replace("old", "new"))
    port = consecutive_ports(2)[0]
    options = ("--debug-ranks", "0", "--debug-allow-edit", "--port", str(port))
    async with running_job(relay, script, *options, launcher=ranks_launcher(2), cwd=tmp_path):
        await until_logged(tmp_path, "old", (1,))
        async with (
            running_client(relay, tmp_path, "--ports", str(port)),
            await DapClient.connect("127.0.0.1", port, within=DEADLINE) as editor,
        ):
            await editor.attach({str(script): [{"line": 1}]}, within=DEADLINE)
            await editor.wait_for_event("stopped", within=DEADLINE)
            await until_listed(relay, tmp_path, "stopped at train.py:1")
            refused = await push_from(relay, tmp_path, local, "train.py")
            await editor.request("disconnect", {"terminateDebuggee": False}, within=DEADLINE)
        await until_logged(tmp_path, "old", (0, 1))
        pushed = await push_from(relay, tmp_path, local, "train.py")
        await until_logged(tmp_path, "new", (0, 1))
    assert (1, "") == (refused.status, refused.stdout)
    assert (
        "error: rank 0: the top level of the file, now at train.py:1, may still execute the old definition of "
        "train_step in line 4; nothing was changed in any rank. hint: push again once it is past line 4 and any loop "
        "around it, or restart the job, or add --ranks 1 to replace the code in the other ranks only\n"
    ) in refused.stderr
    assert ["ranks 0-1: train_step()"] == pushed.stdout.splitlines()[1:]


CLOSURE = MODEL.replace("def hook():\n        return net.weight", "def hook():\n        return net.weight + extra")
CLOSURE = CLOSURE.replace("def make_hook(net):\n", "def make_hook(net):\n    extra = 1\n\n")
CLOSURE = CLOSURE.replace("def unused():\n    return 1\n", "# unused() was here\n\n\nnet = Net()").replace(
    " old ", " new "
)


async def test_rank_that_an_editor_has_stopped(relay: LocalRelay, tmp_path: Path):
    """A push reaches ranks at a breakpoint, lists what remains, and breakpoints are hit at lines of the new file."""
    port = consecutive_ports(RANKS)[0]
    options = ("--port", str(port), "--debug-allow-edit")
    async with training(relay, tmp_path, *options), running_client(relay, tmp_path, "--ports", str(port)):
        async with await DapClient.connect("127.0.0.1", port, within=DEADLINE) as editor:
            line = MODEL.splitlines().index("    time.sleep(0.01)") + 1
            model = str(tmp_path / "model.py")
            await editor.attach({model: [{"line": line}]}, justMyCode=False, within=DEADLINE)
            thread = {"threadId": (await editor.wait_for_event("stopped", within=DEADLINE))["body"]["threadId"]}
            await until_listed(relay, tmp_path, f"stopped at model.py:{line}")

            pushed = await push(relay, tmp_path, CLOSURE)
            first, *others = pushed.stdout.splitlines()
            assert (
                f"model.py: replaced in ranks 0-3 immediately, because rank 0 is stopped at model.py:{line}" == first
            ), pushed.stderr
            assert (
                f"rank 0: train_step() is running at model.py:{line} in MainThread: this call executes the old code "
                "until it returns" in others
            )
            assert (
                "ranks 0-3: make_hook.<locals>.hook() is now a closure over different outer variables (extra, net "
                "instead of net): existing closures keep the old code" in others
            )
            assert "ranks 0-3: unused() was removed from the file, but remains in the process" in others
            assert any(each.endswith("is not executed again: net = Net()") for each in others)

            last = CLOSURE.splitlines().index('    return f"{step} new {net.forward(1)} {calls}"') + 1
            assert last != MODEL.splitlines().index('    return f"{step} old {net.forward(1)} {calls}"') + 1
            set_at = await editor.request(
                "setBreakpoints", {"source": {"path": model}, "breakpoints": [{"line": last}]}, within=DEADLINE
            )
            assert [(last, True)] == [(each["line"], each["verified"]) for each in set_at["breakpoints"]]
            await editor.request("continue", thread, within=DEADLINE)
            await editor.wait_for_event("stopped", within=DEADLINE)
            stack = await editor.request("stackTrace", {**thread, "levels": 1}, within=DEADLINE)
            assert ("train_step", last) == (stack["stackFrames"][0]["name"], stack["stackFrames"][0]["line"])
            await editor.request("setBreakpoints", {"source": {"path": model}, "breakpoints": []}, within=DEADLINE)
            await editor.request("disconnect", {"terminateDebuggee": False}, within=DEADLINE)
        await until_logged(tmp_path, "new")


async def test_each_save_is_pushed(relay: LocalRelay, tmp_path: Path):
    """--watch pushes the file at each save, prints one line for each push or error, and ends at Ctrl-C with 0."""
    port = consecutive_ports(RANKS)[0]
    async with training(relay, tmp_path, "--port", str(port), "--debug-allow-edit"):
        local = tmp_path / "local"
        local.mkdir()
        (local / "model.py").write_text(MODEL)
        command = ("relay_client", "--hc", HC, "push", "model.py", "--watch")
        async with program(*command, env=access(relay, tmp_path, "send"), cwd=local) as watching:
            await watching.line("watching model.py; press Ctrl-C to stop")
            (local / "model.py").write_text(FIXED)
            first = await stdout_line(watching)
            (local / "model.py").write_text(FIXED.replace("calls += 1", "calls +="))
            broken = await stdout_line(watching)
            (local / "other.py").write_text(FIXED.replace("new", "newest"))
            (local / "other.py").replace(local / "model.py")
            last = await stdout_line(watching)
            watching.process.send_signal(signal.SIGINT)
            finished = await watching.finish()
        await until_logged(tmp_path, "newest")
    same_step = f"model.py: {REPLACED}; takes effect at the next call to train_step; ranks 0-3: "
    assert re.fullmatch(rf"[0-9:]{{8}} {re.escape(same_step)}train_step\(\).*", first)
    assert "model.py: ranks 0-3: SyntaxError: invalid syntax (model.py, line " in broken
    assert "nothing was changed in any rank" in broken
    assert same_step in last
    assert (0, "") == (finished.status, finished.stdout)


async def stdout_line(running: Program) -> str:
    """Return the next line that a program prints."""
    return (await asyncio.wait_for(running.process.stdout.readline(), DEADLINE)).decode().rstrip()
