"""Facts about how the stacks of ranks are grouped and shown."""

import json
from dataclasses import replace

import pytest

from relay_client.agents.requests import NodeReply
from relay_client.stacks import group, grouped_stacks, read_replies, show_stacks
from relay_core.agent_api.announcement import AgentId, AgentInfo, Attachment, State, TargetInfo
from relay_core.agent_api.questions import NodeReplies
from relay_core.records import parse

TORCH = "/usr/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"


def frame(file, line, function, **values):
    return {"file": file, "line": line, "function": function, **({"locals": values} if values else {})}


def process(rank, *frames, how="helper thread"):
    main = {"name": "MainThread", "ident": 1, "main": True, "frames": list(frames)}
    return {"port": 5678 + rank, "rank": rank, "pid": 100 + rank, "how": how, "threads": [main]}


def thread(name, *frames):
    return {"name": name, "ident": 2, "main": False, "frames": list(frames)}


def waiting(rank, **options):
    """A rank that waits for the others."""
    main, step = frame("/job/train.py", 90, "<module>"), frame("/job/model.py", 88, "step", loss=f"0.{rank}")
    return process(rank, main, step, frame(TORCH, 2501, "all_reduce"), **options)


def loading(rank, **options):
    """A rank that is elsewhere."""
    return process(rank, frame("/job/train.py", 90, "<module>"), frame("/job/dataset.py", 51, "read"), **options)


OF_REPLY = ("port", "rank", "pid")


def reply(*processes, host="", waiting=()):
    """An agent's answer, as it comes over the wire, and the ports that it announces as waiting."""
    replies = [
        {
            **{name: value for name, value in found.items() if name in OF_REPLY},
            "answer": {name: value for name, value in found.items() if name not in OF_REPLY},
        }
        for found in processes
    ]
    targets = tuple(TargetInfo(port, state=State.WAITING) for port in waiting)
    agent = AgentInfo(AgentId("a"), host=host, targets=(*targets, TargetInfo(5679)))
    return NodeReply(agent, parse(NodeReplies, {"processes": replies}))


def failed(host, error):
    """The reply of an agent that could not be asked."""
    return NodeReply(AgentInfo(AgentId("a"), host=host), error=error)


def labels(*processes, **options):
    return [found.label for found in group(read_replies([reply(*processes)]), **options)]


def test_odd_ranks_first():
    """Of fifteen ranks the one that is elsewhere comes first, with its stack; the others are one paragraph."""
    replies = [
        reply(*(waiting(rank) for rank in range(8) if rank != 3), loading(3), host="node0"),
        reply(*(waiting(rank) for rank in range(8, 15)), host="node1"),
    ]
    assert show_stacks(replies) == (
        "rank 3 on node0 in read dataset.py:51\n"
        "    /job/train.py:90 <module>\n"
        "    /job/dataset.py:51 read\n"
        "\n"
        "14 ranks (0-2,4-14) in all_reduce distributed_c10d.py:2501, called in step model.py:88\n"
        "    /job/train.py:90 <module>\n"
        "    /job/model.py:88 step\n"
        f"    {TORCH}:2501 all_reduce"
    )


def test_everybody_at_one_place():
    """If all ranks do the same, they are shown in one paragraph."""
    text = show_stacks([reply(waiting(0), waiting(1))])
    assert text.startswith("all 2 ranks (0-1) in all_reduce ")


def test_several_jobs():
    """Ranks that have the same number in several jobs are distinguished by their ports."""
    a, b = frame("/job/a.py", 1, "f"), frame("/job/b.py", 1, "g")
    first, other = process(0, a), {**process(0, b), "port": 6000}
    titles = [line for line in show_stacks([reply(first, other, host="vm")]).splitlines() if line.startswith("rank")]
    assert titles == ["rank 0 (port 5678) on vm in f a.py:1", "rank 0 (port 6000) on vm in g b.py:1"]
    twin = {**process(0, a), "port": 6000}
    assert show_stacks([reply(first, twin)]).startswith("all 2 ranks (0; ports 5678,6000) in f a.py:1\n")
    assert labels(first, other, process(1, a)) == ["rank 0 (port 6000)", "2 ranks (0-1; ports 5678-5679)"]


def test_waiting_for_a_debugger():
    """Ranks that wait for a debugger are a group of their own, which names their ports."""
    replies = [reply(waiting(0), waiting(1), waiting(2), waiting=(5678, 5680))]
    lines = show_stacks(replies).splitlines()
    assert lines[0].startswith("rank 1 in all_reduce ")
    assert "2 ranks (0,2), waiting for a debugger on ports 5678,5680, in all_reduce " in "\n".join(lines)
    found = grouped_stacks(replies)
    assert ["", "waiting for a debugger on ports 5678,5680"] == [group["state"] for group in found]


def test_stopped_by_a_debugger():
    """A rank that a debugger has stopped is named as such, also at the same line as a rank that waits."""
    found = reply(waiting(0), waiting(2), host="vm")
    held = TargetInfo(5680, attachment=Attachment("bob@laptop", is_stopped=True))
    found = replace(found, agent=replace(found.agent, targets=(TargetInfo(5678), held)))
    titles = [line for line in show_stacks([found]).splitlines() if line.startswith("rank")]
    assert titles[0].startswith("rank 0 on vm in all_reduce ")
    assert titles[1].startswith("rank 2 on vm, stopped by a debugger on port 5680, in all_reduce ")


def test_line_function_and_file_count():
    """Stacks are equal if file, line and function of each frame are; variables do not count."""
    a, b = frame("/job/a.py", 1, "f"), frame("/job/a.py", 2, "f")
    assert labels(process(0, a), process(1, b), process(2, a)) == ["rank 1", "2 ranks (0,2)"]
    assert labels(waiting(0), waiting(1)) == ["2 ranks (0-1)"]
    assert labels(process(0, a), process(1, frame("/job/a.py", 1, "g"))) == ["rank 0", "rank 1"]


def test_other_threads_count_on_request():
    """By default only main threads are compared; with all threads, their names and order still do not count."""
    reader, idle = frame("/job/io.py", 5, "fetch"), frame("/job/io.py", 9, "idle")
    processes = [waiting(0), waiting(1), waiting(2)]
    for found, extra in zip(processes, ([reader, idle], [idle, reader], [idle, idle]), strict=True):
        found["threads"] += [thread(f"worker-{found['rank']}", one) for one in extra]
    assert labels(*processes) == ["3 ranks (0-2)"]
    assert labels(*processes, all_threads=True) == ["rank 2", "2 ranks (0-1)"]
    text = show_stacks([reply(*processes)])
    assert "and 2 other threads" in text
    assert "io.py" not in text
    text = show_stacks([reply(*processes)], all_threads=True)
    assert "  thread worker-2\n    /job/io.py:9 idle" in text


def test_who_has_seen_it():
    """Ranks that were asked in different ways are still one group, which names the ranks of each way."""
    text = show_stacks([reply(waiting(0), waiting(1, how="faulthandler"), waiting(2))])
    assert "  reported by helper thread (2 ranks (0,2)), faulthandler (rank 1)\n" in text


def test_who_gave_no_stack_comes_first():
    """A rank without a stack, and an agent that could not be asked, come first and say why."""
    silent = {"rank": 2, "port": 5680, "pid": 9, "how": "none", "threads": [], "error": "it has ended"}
    replies = [reply(waiting(0), loading(1), silent), failed("node1", "its tunnel is lost")]
    lines = show_stacks(replies).splitlines()
    assert lines[0] == "node1: no stack: its tunnel is lost"
    assert lines[2] == "rank 2: no stack: it has ended"
    assert lines[4].startswith("rank 0 in ")


def test_ranks_are_chosen():
    """The ranks that agents have chosen are shown, and agents that may have more of them."""
    replies = [reply(loading(1)), failed("node1", "gone")]
    assert [found.rank for found in read_replies(replies)] == [1, None]
    assert show_stacks([reply()]) == "no matching process"


def test_variables_on_request():
    """Variables stand under their frame; of a group they are those of the first rank."""
    replies = [reply(waiting(4), waiting(2))]
    assert "loss" not in show_stacks(replies)
    text = show_stacks(replies, locals=True)
    assert "\n  variables of rank 2\n" in text
    assert "    /job/model.py:88 step\n        loss = 0.2\n" in text


def test_frames_of_the_debugger_are_not_shown():
    """A thread at a breakpoint shows the line of the breakpoint, not how the debugger waits."""
    stop = frame("/x/site-packages/debugpy/_vendored/pydevd/pydevd.py", 2199, "do_wait_suspend")
    text = show_stacks([reply(process(0, frame("/job/a.py", 1, "f"), stop, stop))])
    assert text.endswith("rank 0 in f a.py:1\n    /job/a.py:1 f")


def test_processes_without_ranks():
    """What has no rank is known by its port."""
    found = waiting(0)
    del found["rank"]
    assert show_stacks([reply(found)]).startswith("port 5678 in all_reduce ")


def test_text_of_a_job_cannot_steer_the_terminal():
    """Escape sequences and line breaks in names and values are shown as such."""
    evil = frame("/job/\x1b[2Ja.py", 1, "f", x="a\nb\x1b]0;title\x07")
    text = show_stacks([reply(process(0, evil), host="\x1b[1m")], locals=True)
    assert "\x1b" not in text
    assert "        x = a\\nb\\x1b]0;title\\x07" in text


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"processes": None},
        {"processes": [None, 3, {}]},
        {"processes": [{"port": 1, "answer": 3}, {"port": 2, "stacks": [3]}]},
        {
            "processes": [
                {"port": 1, "rank": "x", "answer": {"threads": [{"frames": [{"line": "x", "locals": [1]}, None]}, 7]}}
            ]
        },
    ],
)
def test_replies_of_other_versions(answer):
    """Fields that are missing or of another kind do not end the command."""
    found = NodeReply(AgentInfo(AgentId("a")), parse(NodeReplies, answer))
    assert show_stacks([found], locals=True)
    assert json.dumps(grouped_stacks([found]))


def test_json():
    """JSON has the groups in the same order, with everything that was reported."""
    found = json.loads(json.dumps(grouped_stacks([reply(waiting(0), waiting(1), loading(2), host="node0")])))
    assert [one["ranks"] for one in found] == [[2], [0, 1]]
    assert found[1] | {"threads": []} == {
        "ranks": [0, 1],
        "ports": [5678, 5679],
        "pids": [100, 101],
        "hosts": ["node0"],
        "place": "all_reduce distributed_c10d.py:2501, called in step model.py:88",
        "state": "",
        "how": "helper thread",
        "error": "",
        "threads": [],
    }
    assert found[0]["threads"][0]["frames"][1] == frame("/job/dataset.py", 51, "read") | {"locals": {}}


@pytest.mark.parametrize("environ", [{}, {"NO_COLOR": "1", "TERM": "dumb"}, {"COLORTERM": "truecolor"}])
def test_colours(environ: dict[str, str], monkeypatch: pytest.MonkeyPatch):
    """On a terminal, headings are bold, variables cyan and the text is the same, in whichever process it is made."""
    for name in ("NO_COLOR", "TERM", "COLORTERM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    replies = [reply(waiting(0), loading(1))]
    colored = show_stacks(replies, locals=True, color=True)
    assert "\x1b[1m" in colored
    assert "\x1b[36m" in colored
    assert [line.rstrip() for line in show_stacks(replies, locals=True).splitlines()] == [
        line.rstrip() for line in _without_codes(colored).splitlines()
    ]


def _without_codes(text):
    import re

    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def test_thread_at_a_breakpoint():
    """A thread that has stopped at a breakpoint is shown below the main thread, and distinguishes ranks."""
    processes = [waiting(0), waiting(1)]
    processes[0]["threads"] += [
        thread("Dummy-6", frame("/job/loss.py", 12, "backward")) | {"stopped": True},
        thread("pin_memory", frame("/job/io.py", 9, "idle")),
    ]
    assert ["rank 0", "rank 1"] == labels(*processes)
    assert ["Dummy-6", "MainThread"] == [found.halted.name for found in read_replies([reply(*processes)])]
    assert show_stacks([reply(processes[0])]).splitlines()[1:] == [
        "  thread MainThread",
        "    /job/train.py:90 <module>",
        "    /job/model.py:88 step",
        f"    {TORCH}:2501 all_reduce",
        "  thread Dummy-6, stopped",
        "    /job/loss.py:12 backward",
        "  and 1 other thread",
    ]
