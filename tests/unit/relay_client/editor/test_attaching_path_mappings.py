"""Facts about the directories of an editor and of a job."""

import pytest

from relay_client.editor.attaching import map_paths, mapping_text, remote_path
from relay_client.editor.messages import JobView

JOB = JobView(5678, "myhc", host="node", cwd="/mnt/job", script="train.py")


def nowhere(_folder: str, _script: str) -> str:
    return ""


@pytest.mark.parametrize(
    ("remote", "absolute"),
    [
        (".", "/mnt/job"),
        ("src", "/mnt/job/src"),
        ("./src/../lib/", "/mnt/job/lib"),
        ("/opt/code", "/opt/code"),
        ("~/code", "~/code"),
        ("C:\\code", "C:\\code"),
    ],
)
def test_a_relative_remote_root_begins_where_the_job_was_started(remote: str, absolute: str) -> None:
    """A debugger would take the directory that the job is in when it attaches; absolute paths pass."""
    mapping = {"localRoot": "/home/me/job", "remoteRoot": remote}
    found, line = map_paths({"pathMappings": [mapping], "justMyCode": False}, JOB, nowhere)
    assert {"pathMappings": [{**mapping, "remoteRoot": absolute}], "justMyCode": False} == found
    assert "" == line


def test_the_older_form_of_mappings() -> None:
    """`localRoot` and `remoteRoot` among the arguments are a mapping, too."""
    found, _line = map_paths({"localRoot": "/home/me/job", "remoteRoot": "."}, JOB, nowhere)
    assert {"localRoot": "/home/me/job", "remoteRoot": "/mnt/job"} == found


@pytest.mark.parametrize("missing", [{}, {"pathMappings": []}, {"pathMappings": None}])
def test_missing_mappings_are_set_if_the_script_is_found(missing: dict[str, object]) -> None:
    """The folder of the editor that has the job's script is mapped, and a line shows that."""
    asked = []

    def find(folder: str, script: str) -> str:
        asked.append((folder, script))
        return folder

    arguments = {**missing, "workspaceFolder": "/home/me/job"}
    found, line = map_paths(arguments, JOB, find)
    assert [("/home/me/job", "train.py")] == asked
    mappings = [{"localRoot": "/home/me/job", "remoteRoot": "/mnt/job"}]
    assert {**arguments, "pathMappings": mappings} == found
    assert (
        "the attach configuration has no pathMappings: /home/me/job is mapped to /mnt/job on node, where the job was "
        'started. hint: to configure this, add "pathMappings": [{"localRoot": "/home/me/job", "remoteRoot": "."}]'
    ) == line


@pytest.mark.parametrize("found", ["", "/mnt/job"])
def test_nothing_is_set_without_need(found: str) -> None:
    """Without the script on this machine, or if both directories are the same, the arguments pass unchanged."""
    assert ({"justMyCode": False}, "") == map_paths({"justMyCode": False}, JOB, lambda _folder, _script: found)


def test_a_job_whose_directory_is_unknown() -> None:
    """The arguments pass as they are."""
    arguments = {"pathMappings": [{"localRoot": "/home/me/job", "remoteRoot": "."}]}
    assert (arguments, "") == map_paths(arguments, JobView(5678), nowhere)


def test_what_is_not_a_mapping_passes() -> None:
    """Elements without a `remoteRoot` are left to debugpy."""
    assert [{}, {"remoteRoot": 3}] == map_paths({"pathMappings": [None, {"remoteRoot": 3}]}, JOB, nowhere)[0][
        "pathMappings"
    ]


@pytest.mark.parametrize(
    ("local", "remote"),
    [
        ("/home/me/job/train.py", "train.py"),
        ("/home/me/job/models/net.py", "models/net.py"),
        ("/home/me/lib/a.py", "/opt/lib/a.py"),
        ("C:\\job\\models\\net.py", "models/net.py"),
        ("/home/me/jobs/train.py", ""),
        ("/elsewhere/train.py", ""),
    ],
)
def test_a_file_is_found_on_the_node(local: str, remote: str) -> None:
    """The first mapping that fits counts; files of the job are relative to its directory."""
    arguments = {
        "pathMappings": [
            {"localRoot": "/home/me/job", "remoteRoot": "/mnt/job"},
            {"localRoot": "/home/me/lib/", "remoteRoot": "/opt/lib"},
            {"localRoot": "C:\\job", "remoteRoot": "/mnt/job"},
            {"remoteRoot": "/mnt/job"},
        ]
    }
    assert remote == remote_path(local, arguments, JOB.cwd)


def test_no_file_is_found_without_mappings() -> None:
    """Without mappings nothing is known about the node's files."""
    assert "" == remote_path("/home/me/job/train.py", {}, JOB.cwd)


def test_a_mapping_is_written_as_in_a_file() -> None:
    """Backslashes are escaped, and letters are not."""
    assert '"pathMappings": [{"localRoot": "C:\\\\Träume", "remoteRoot": "."}]' == mapping_text("C:\\Träume")
