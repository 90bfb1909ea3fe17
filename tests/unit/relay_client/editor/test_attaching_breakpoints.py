"""Facts about the line that is shown for breakpoints that were not set."""

from dataclasses import replace
from typing import Any

import pytest

from relay_client.editor.attaching import Attaching
from relay_client.editor.messages import JobView
from relay_client.editor.notices import Outbox

JOB = JobView(5678, "myhc", host="node", cwd="/mnt/job", script="train.py")
MISSING = {"verified": False, "message": "Breakpoint in file that does not exist."}
EXCLUDED = {"verified": False, "message": 'Breakpoint in file excluded by filters.\nNote: ... "justMyCode" ...'}
LAZY = {"verified": False, "message": "Waiting for code to be loaded to verify breakpoint."}


def attaching() -> Attaching:
    return Attaching(Outbox(), lambda _folder, _script: "", lambda _local, _remote: None)


def line(
    path: str,
    *found: dict[str, Any],
    view: JobView = JOB,
    editor: Attaching | None = None,
    remote: str = "",
) -> str:
    """Return the line for one file, which is mapped to `remote`."""
    editor = editor or attaching()
    if remote:
        editor._sources[path] = remote
    arguments = {"source": {"path": path}, "breakpoints": [{"line": 1} for _ in found]}
    request = {"seq": 7, "type": "request", "command": "setBreakpoints", "arguments": arguments}
    editor.breakpoints_requested(request, view)
    response = {"type": "response", "request_seq": 7, "body": {"breakpoints": list(found)}}
    assert not editor.responded(response, view)
    shown = [output.event()["body"] for output in editor._outbox.take()]
    assert len(shown) <= 1
    assert all("important" == body["category"] for body in shown)
    return "".join(body["output"].removeprefix("relay-client: ").rstrip("\n") for body in shown)


@pytest.mark.parametrize(
    ("path", "remote", "missing", "hint"),
    [
        pytest.param(
            *("/home/me/job/train.py", "/wrong/train.py", "/wrong/train.py"),
            'in launch.json, set "pathMappings": [{"localRoot": "/home/me/job", "remoteRoot": "."}]',
            id="a file that the node does not have: the hint is the mapping to write, which suits the next job, too",
        ),
        pytest.param(
            *("/home/me/src/train.py", "src/train.py", "/mnt/job/src/train.py"),
            'in launch.json, set "pathMappings": [{"localRoot": "/home/me/src", "remoteRoot": "."}]',
            id="the job was started in the directory of a script that is mapped to a subdirectory: another localRoot",
        ),
        pytest.param(
            *("/home/me/models/net.py", "models/net.py", "/mnt/job/models/net.py"),
            "check that the job's code contains this file, and check localRoot in launch.json",
            id="a file that the job does not contain: the mapping that the editor has already is not suggested",
        ),
    ],
)
def test_a_file_that_debugpy_does_not_find(path: str, remote: str, missing: str, hint: str) -> None:
    """The line has the file that is missing on the node, the job's directory, and what to do."""
    assert (
        f"breakpoints in {path.rpartition('/')[2]} are not set: debugpy on node does not find {missing}. "
        f"The job was started in /mnt/job. hint: {hint}"
    ) == line(path, MISSING, remote=remote)


def test_another_file() -> None:
    """Of another file that is not mapped, only the directory on the node is known."""
    assert '"localRoot": "${workspaceFolder}", "remoteRoot": "."' in line("/home/me/job/models/net.py", MISSING)


def test_a_path_of_windows() -> None:
    """The folder of a path with backslashes is found, too."""
    assert '"localRoot": "C:\\\\job", "remoteRoot": "."' in line("C:\\job\\train.py", MISSING)


def test_a_job_whose_directory_is_unknown() -> None:
    """The line names the setting."""
    assert (
        "breakpoints in train.py are not set: debugpy on the node does not find /home/me/job/train.py. "
        "hint: check pathMappings in launch.json"
    ) == line("/home/me/job/train.py", MISSING, view=JobView(5678))


def test_code_of_others() -> None:
    """What `justMyCode` excludes is not a matter of mappings."""
    assert 'breakpoints in b.py are not set: /a/b.py is excluded by justMyCode. hint: set "justMyCode": false' == line(
        "/a/b.py", EXCLUDED
    )


@pytest.mark.parametrize("found", [{"verified": True}, LAZY, {"verified": False}])
def test_other_breakpoints(found: dict[str, Any]) -> None:
    """Breakpoints that are set, or will be once the code is loaded, need no line."""
    assert "" == line("/home/me/job/train.py", found)


def test_each_file_is_named_once() -> None:
    """Further breakpoints in the same file are not reported again; another file is."""
    editor = attaching()
    shown = [line(path, {"verified": True}, MISSING, editor=editor) for path in ("/a.py", "/a.py", "/b.py")]
    assert [True, False, True] == [bool(text) for text in shown]
    assert ({}, {"/a.py", "/b.py"}) == (editor._files, editor._unset)


def test_the_view_may_lack_a_host() -> None:
    """An unknown host is "the node"."""
    found = line("/a.py", MISSING, view=replace(JOB, host=""))
    assert "are not set: debugpy on the node does not find /a.py. The job" in found
