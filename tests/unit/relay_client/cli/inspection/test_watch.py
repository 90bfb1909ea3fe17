"""Facts about the command line of `relay-client watch`."""

from pathlib import Path

import pytest

from relay_client.cli import make_parser
from relay_client.cli.inspection.watch import _doubt, _node_place
from relay_client.push.deliver import node_paths
from relay_core.errors import UsageError


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A current directory with two files."""
    (directory := tmp_path / "project").mkdir()
    monkeypatch.chdir(directory)
    (directory / "models").mkdir()
    for file in (directory / "train.py", directory / "models" / "net.py", tmp_path / "other.py"):
        file.touch()
    return directory


@pytest.mark.parametrize("file", ["train.py", "./train.py", "models/net.py", "models/../train.py"])
def test_file_below_the_current_directory(project: Path, file: str) -> None:
    """The path is relative to the current directory, as in a push, however it was typed."""
    shown = node_paths(Path(file))[-1]
    assert f"{shown}:88" == _node_place(f"{file}:88") == _node_place(f"{project / file}:88")
    assert not Path(shown).is_absolute()


@pytest.mark.parametrize("file", ["/app/train.py", "models/absent.py", "absent.py"])
def test_file_on_the_nodes(file: str) -> None:
    """The path of a file that is not on this machine is kept."""
    assert f"{file}:10" == _node_place(f"{file}:10")


def test_link_outside_of_the_current_directory(project: Path) -> None:
    """A path that leads through a link on this machine is kept, because the link may be on the nodes too."""
    (link := project.parent / "link").symlink_to(project.parent)
    assert f"{link}/other.py:1" == _node_place(f"{link}/other.py:1")


def test_file_beside_the_current_directory(project: Path) -> None:
    """A path that begins with `..` means nothing on the nodes, so it becomes absolute."""
    assert f"{project.parent / 'other.py'}:1" == _node_place("../other.py:1")


def test_gradients(project: Path) -> None:
    """The word `nan` does not name a file, and needs no expression."""
    (project / "nan").touch()
    arguments = make_parser().parse_args(["watch", "nan", "--then", "hold"])
    assert ("nan", "", "hold") == (arguments.place, arguments.expression, arguments.then)
    assert ("nan", "") == (_node_place("nan"), _doubt("nan"))


@pytest.mark.parametrize(
    ("place", "doubt"),
    [
        ("train.py:1", ""),
        ("../other.py:1", ""),
        ("models/tarin.py:1", ". models/tarin.py does not exist in the current directory either"),
        ("/app/absent.py:1", ". /app/absent.py does not exist on this machine either"),
    ],
)
def test_file_with_a_typo(place: str, doubt: str) -> None:
    """A sentence reports that the file does not exist on this machine, in case the path has a typo."""
    assert doubt == _doubt(place)


@pytest.mark.parametrize("option", ["--hits", "--every"])
@pytest.mark.parametrize("number", ["0", "-1", "x", "1e3", "", "1000000000", pytest.param("9" * 5000, id="long")])
def test_invalid_number(option: str, number: str, capfd: pytest.CaptureFixture[str]) -> None:
    """A number that is out of range is refused, with the range."""
    with pytest.raises(SystemExit):
        make_parser().parse_args(["watch", "a.py:1", "x", f"{option}={number}"])
    error = capfd.readouterr().err
    assert f"argument {option}: invalid number: '{number[:99]}" in error
    assert "hint: use a number from 1 to 999999999\n" in error


@pytest.mark.parametrize(
    ("option", "error"),
    [
        (["x" * 20_000], "the expression or the condition is longer than 16384 characters"),
        (["x", "--when", "x" * 20_000], "the expression or the condition is longer than 16384 characters"),
        (["x", "--for", "1200h"], "the watch has no valid frequency, or no duration of at most 4294967 s"),
    ],
)
def test_limits(option: list[str], error: str) -> None:
    """What no process accepts is refused before anything is connected."""
    arguments = make_parser().parse_args(["watch", "a.py:1", *option])
    with pytest.raises(UsageError) as raised:
        arguments.command(arguments)
    assert error == raised.value.sentence
