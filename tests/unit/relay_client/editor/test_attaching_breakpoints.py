"""Facts about the line that is shown for breakpoints that were not set."""

from dataclasses import replace
from typing import Any

import pytest

from relay_client.editor.attaching import UnsetBreakpoints
from relay_client.editor.job_view import JobView

JOB = JobView(5678, "myhc", host="node", cwd="/mnt/job", script="train.py")
MISSING = {"verified": False, "message": "Breakpoint in file that does not exist."}
EXCLUDED = {"verified": False, "message": 'Breakpoint in file excluded by filters.\nNote: ... "justMyCode" ...'}
LAZY = {"verified": False, "message": "Waiting for code to be loaded to verify breakpoint."}


def line(
    path: str,
    *found: dict[str, Any],
    view: JobView = JOB,
    breakpoints: UnsetBreakpoints | None = None,
    remote: str = "",
) -> str:
    """Return the line for one file, which is mapped to `remote`."""
    breakpoints = breakpoints or UnsetBreakpoints()
    arguments = {"source": {"path": path}, "breakpoints": [{"line": 1} for _ in found]}
    breakpoints.requested({"seq": 7, "type": "request", "command": "setBreakpoints", "arguments": arguments})
    response = {"type": "response", "request_seq": 7, "body": {"breakpoints": list(found)}}
    return breakpoints.answered(response, view, {path: remote})


def test_a_file_that_the_node_does_not_have() -> None:
    """The line has the file that is missing on the node, and the mapping to write, which suits the next job, too."""
    assert (
        "breakpoints in train.py are not set: debugpy on node does not find /wrong/train.py. "
        "The job was started in /mnt/job. "
        'hint: in launch.json, set "pathMappings": [{"localRoot": "/home/me/job", "remoteRoot": "."}]'
    ) == line("/home/me/job/train.py", MISSING, remote="/wrong/train.py")


def test_a_script_that_is_mapped_to_a_subdirectory() -> None:
    """If the job was started in the script's directory, the line has another localRoot."""
    assert (
        "breakpoints in train.py are not set: debugpy on node does not find /mnt/job/src/train.py. "
        "The job was started in /mnt/job. "
        'hint: in launch.json, set "pathMappings": [{"localRoot": "/home/me/src", "remoteRoot": "."}]'
    ) == line("/home/me/src/train.py", MISSING, remote="src/train.py")


def test_a_file_that_the_job_does_not_contain() -> None:
    """The line does not suggest the mapping that the editor has already."""
    assert (
        "breakpoints in net.py are not set: debugpy on node does not find /mnt/job/models/net.py. "
        "The job was started in /mnt/job. "
        "hint: check that the job's code contains this file, and check localRoot in launch.json"
    ) == line("/home/me/models/net.py", MISSING, remote="models/net.py")


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
    breakpoints = UnsetBreakpoints()
    shown = [line(path, {"verified": True}, MISSING, breakpoints=breakpoints) for path in ("/a.py", "/a.py", "/b.py")]
    assert [True, False, True] == [bool(text) for text in shown]
    assert "<UnsetBreakpoints pending=0 shown=2>" == repr(breakpoints)


def test_the_view_may_lack_a_host() -> None:
    """An unknown host is "the node"."""
    found = line("/a.py", MISSING, view=replace(JOB, host=""))
    assert "are not set: debugpy on the node does not find /a.py. The job" in found
