"""Facts about finding a job's code on this machine, and comparing it, with the digests of the agent's own function."""

from pathlib import Path
from typing import Any

import pytest

from relay_agent.node.in_agent.node_answers import MAX_SOURCE, file_digest
from relay_client.ports import editor_link
from relay_client.ports.editor_link import find_local_root, is_different
from relay_core.agent_api.announcement import AgentId
from relay_core.agent_api.requests import Digest
from relay_core.errors import RelayDebugError
from relay_core.records import encode


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of a job, whose agent answers."""
    directory = tmp_path / "node"
    directory.mkdir()

    async def answer(_tunnels: Any, _agent_id: AgentId, request: Digest, *, within: float) -> dict[str, object]:
        assert within > 0
        if request.port != 5678:
            raise RelayDebugError("this agent serves ports, not processes")
        return encode(file_digest(directory / request.path))

    monkeypatch.setattr(editor_link, "send_request", answer)
    return directory


async def compare(local: Path, remote: str, port: int = 5678) -> bool | None:
    return await is_different(None, AgentId("agent"), port, str(local), remote)


@pytest.mark.parametrize(
    ("own", "theirs", "different"),
    [(b"a\n", b"a\n", False), (b"a\r\nb\r\n", b"a\nb\n", False), (b"a\n", b"b\n", True), (b"", b"a\n", True)],
)
async def test_contents_are_compared_without_line_ends(
    tmp_path: Path, node: Path, own: bytes, theirs: bytes, different: bool
) -> None:
    """Editors and git change line ends; everything else counts."""
    local = tmp_path / "train.py"
    local.write_bytes(own)
    (node / "train.py").write_bytes(theirs)
    assert different == await compare(local, "train.py")


async def test_what_cannot_be_compared_is_neither_equal_nor_different(tmp_path: Path, node: Path) -> None:
    """Missing, unreadable and large files, long names, and agents that cannot answer do not cause a line."""
    local, large = tmp_path / "train.py", tmp_path / "large.py"
    local.write_bytes(b"a")
    large.write_bytes(bytes(MAX_SOURCE + 1))
    (node / "other.py").write_bytes(b"b")
    (node / "large.py").write_bytes(bytes(MAX_SOURCE + 1))
    assert [None] * 6 == [
        await compare(local, "absent.py"),
        await compare(tmp_path / "absent.py", "other.py"),
        await compare(large, "other.py"),
        await compare(local, "large.py"),
        await compare(local, "x" * 300),
        await compare(local, "other.py", port=5679),
    ]
    assert True is await compare(local, "other.py")


def test_only_regular_files_have_a_digest(tmp_path: Path) -> None:
    """Directories, devices and impossible names have none."""
    assert {""} == {file_digest(path).sha256 for path in (tmp_path, Path("/dev/zero"), Path("a\0b"))}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    directory = tmp_path / "here"
    directory.mkdir()
    monkeypatch.chdir(directory)
    return directory


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    directory = tmp_path / "folder"
    (directory / "package" / "part").mkdir(parents=True)
    for name in ("train.py", "package/main.py"):
        (directory / name).touch()
    return directory


@pytest.mark.parametrize("script", ["train.py", "train", "package.main", "package.part", "package"])
def test_the_folder_of_the_editor_comes_first(here: Path, folder: Path, script: str) -> None:
    """Scripts, modules and packages are found."""
    (here / "train.py").touch()
    assert str(folder) == find_local_root(str(folder), script)


def test_the_current_directory_comes_second(here: Path, folder: Path) -> None:
    """Where relay-client was started, the code often is."""
    (here / "other.py").touch()
    assert [str(here), str(here)] == [find_local_root(root, "other.py") for root in (str(folder), "")]


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("script", ["absent.py", "", ".", ".."])
def test_code_that_is_not_here(folder: Path, script: str) -> None:
    """Nothing is guessed."""
    assert "" == find_local_root(str(folder), script)
