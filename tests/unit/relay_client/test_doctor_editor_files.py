"""Facts about the check of launch.json."""

from pathlib import Path

import pytest

from relay_client.doctor import check_launch_json
from relay_client.editor_setup.entries import entries_for
from relay_client.editor_setup.vscode import launch_json
from relay_core.diagnosis.checks import Skipped
from relay_core.errors import ConfigurationError


def write(folder: Path, text: str) -> None:
    (folder / ".vscode").mkdir()
    (folder / ".vscode" / "launch.json").write_text(text)


def test_what_init_writes_passes(tmp_path: Path) -> None:
    """The file of `relay-client init` attaches to its ports."""
    write(tmp_path, launch_json("", entries_for([5678, 5679], None), "launch.json"))
    assert ".vscode/launch.json attaches to ports 5678-5679" == check_launch_json(tmp_path, [5678, 5679])


def test_a_folder_without_the_file_is_skipped(tmp_path: Path) -> None:
    """Another editor needs no launch.json."""
    with pytest.raises(Skipped, match=r"no .vscode/launch.json in"):
        check_launch_json(tmp_path, [5678])


def test_a_missing_port_is_named(tmp_path: Path) -> None:
    """Without a configuration for a rank's port, F5 cannot attach to it."""
    write(tmp_path, launch_json("", entries_for([5678], None), "launch.json"))
    with pytest.raises(ConfigurationError, match="no configuration attaches to ports 5679-5680") as caught:
        check_launch_json(tmp_path, [5678, 5679, 5680], "--ports 5678-5680 ")
    assert "run: relay-client init vscode --ports 5678-5680 --write" == caught.value.hint


def test_the_deprecated_type_is_named(tmp_path: Path) -> None:
    """The type `python` was removed from VS Code's Python extension."""
    write(tmp_path, '{"configurations": [{"name": "Old", "type": "python", "request": "attach", "port": 5678}]}')
    with pytest.raises(ConfigurationError, match="'Old' has the deprecated type 'python'"):
        check_launch_json(tmp_path, [])


def test_a_broken_file(tmp_path: Path) -> None:
    """The hint does not mention changes, because the check makes none."""
    write(tmp_path, "{")
    with pytest.raises(ConfigurationError, match="line 1: expected a name") as caught:
        check_launch_json(tmp_path, [])
    assert "correct the file" == caught.value.hint


def test_a_listening_configuration_counts(tmp_path: Path) -> None:
    """With `listen`, the job connects to the editor on the port; comments are allowed."""
    write(
        tmp_path,
        '{"configurations": [ // mine\n{"type": "debugpy", "request": "attach", "listen": {"port": "5678"}}]}',
    )
    assert ".vscode/launch.json attaches to port 5678" == check_launch_json(tmp_path, [5678])


@pytest.mark.parametrize("text", ["", "[]", '{"configurations": 1}', '{"configurations": [{"request": "launch"}]}'])
def test_a_file_without_a_configuration(tmp_path: Path, text: str) -> None:
    """A file that attaches to nothing is a failure."""
    write(tmp_path, text)
    with pytest.raises(ConfigurationError, match="no configuration attaches to a port"):
        check_launch_json(tmp_path, [])


def test_an_invalid_file_has_a_line(tmp_path: Path) -> None:
    """A file that VS Code cannot read is reported by the parser."""
    write(tmp_path, '{"configurations": [}')
    with pytest.raises(ConfigurationError, match="launch.json"):
        check_launch_json(tmp_path, [])
