"""Facts about the event files that an agent serves, and about all others, which it does not."""

from pathlib import Path

import pytest

from relay_agent.node.in_agent.node_answers import list_files, read_data
from relay_core.agent_api.event_files import MAX_CHUNK, EventDataRequest, EventFile
from relay_core.errors import ConfigurationError

NAME = "events.out.tfevents.1"


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """A directory with an event file and other files, and a secret beside it."""
    runs = tmp_path / "runs"
    (runs / "train").mkdir(parents=True)
    (runs / "train" / NAME).write_bytes(b"0123456789")
    (runs / "model.pt").write_bytes(b"weights")
    (tmp_path / "secret").write_text("secret")
    (tmp_path / NAME).write_text("secret")
    return runs


def test_files_of_the_directories(job: Path) -> None:
    """Only event files are listed, with the number of their directory; a missing directory has none."""
    assert (EventFile(f"1/train/{NAME}", 10),) == list_files([str(job / "missing"), str(job)]).files


def test_data_from_an_offset(job: Path) -> None:
    """The bytes after the offset are returned, at most a chunk, and none at the end."""
    assert b"6789" == read_data([str(job)], EventDataRequest(f"0/train/{NAME}", 6)).data
    assert b"" == read_data([str(job)], EventDataRequest(f"0/train/{NAME}", 10)).data
    (job / NAME).write_bytes(bytes(MAX_CHUNK + 1))
    assert MAX_CHUNK == len(read_data([str(job)], EventDataRequest(f"0/{NAME}", 0)).data)


@pytest.mark.parametrize(
    "path",
    [
        *("0/model.pt", f"0/../{NAME}", "0/../secret", f"1/train/{NAME}", f"-1/{NAME}", f"x/{NAME}", "0/", f"0/{NAME}"),
        *(
            f"0/link/{NAME}",
            "0/events.out.tfevents.link",
            "0/events.out.tfevents.out",
            "0/train/events.out.tfevents.\0",
        ),
    ],
)
def test_no_other_file(job: Path, path: str) -> None:
    """Other names, other directories and links that lead out of the directory are refused."""
    (job / "link").symlink_to(job.parent)
    (job / "events.out.tfevents.link").symlink_to(job.parent / "secret")
    (job / "events.out.tfevents.out").symlink_to(job.parent / NAME)
    with pytest.raises(ConfigurationError, match="is not an event file on this node"):
        read_data([str(job)], EventDataRequest(path, 0))
    assert [f"0/train/{NAME}"] == [file.path for file in list_files([str(job)]).files]


def test_absolute_path(job: Path) -> None:
    """An absolute path does not replace the directory."""
    with pytest.raises(ConfigurationError):
        read_data([str(job)], EventDataRequest(f"0/{job.parent / NAME}", 0))
