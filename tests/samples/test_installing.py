"""Facts about docs/guides/installing.md: what a release consists of, and installing it as a tool with pipx and uv."""

import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from tests.samples.kit import NO_INDEX, ROOT, environment, wheel
from tests.support.machine.deadline import DEADLINE

PAGE = (ROOT / "docs" / "guides" / "installing.md").read_text()
FROM_CHECKOUT, FROM_WHEEL = re.findall(
    r"^```sh\n(.*?)^```$", PAGE.partition("## With pipx or uv\n")[2].partition("\n## ")[0], re.MULTILINE | re.DOTALL
)
TIME_LIMIT = 6 * DEADLINE
PROGRAMS = ("relay-agent", "relay-client", "relay-server")

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("installing")]  # they share what is installed


def run(*command: str | Path, cwd: Path, **variables: str) -> str:
    """Run a program that may use the network, and return its output; the test is skipped without an index."""
    env = environment(**variables)
    del env["PYTHONPATH"]
    done = subprocess.run(
        command, cwd=cwd, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
        timeout=TIME_LIMIT,
    )  # fmt: skip
    if done.returncode and (reason := NO_INDEX.search(done.stdout)):
        pytest.skip(f"the package index cannot be reached: {reason[0]}")
    assert 0 == done.returncode, done.stdout
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what `python -m build` makes: the source distribution, and the wheel that it makes from that."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--outdir", folder, ROOT, cwd=folder)
    return folder


def test_the_source_distribution_has_the_tracked_files(built: Path) -> None:
    """It has every tracked file and the package's metadata, and nothing that git ignores or that lies beside them."""
    (archive,) = built.glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        names = {name.partition("/")[2] for name in opened.getnames()}
    tracked, new = (files_of_git(*options) for options in (("-c",), ("-o", "--exclude-standard")))
    assert {*tracked, "PKG-INFO"} - names == set()
    assert names - {*tracked, *new, "PKG-INFO"} == set()


def files_of_git(*options: str) -> set[str]:
    """The files of the checkout that `git ls-files` lists."""
    listed = subprocess.run(["git", "ls-files", *options], cwd=ROOT, capture_output=True, text=True, check=True)
    return {name for name in listed.stdout.splitlines() if (ROOT / name).is_file()}


def test_the_source_distribution_makes_the_same_wheel(built: Path) -> None:
    """The wheel from the source distribution has the same bytes as the one from the checkout."""
    (from_source,) = built.glob("*.whl")
    assert (wheel().name, wheel().read_bytes()) == (from_source.name, from_source.read_bytes())


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of a new environment with pipx and uv."""
    folder = tmp_path_factory.mktemp("tools")
    run(sys.executable, "-m", "venv", "--without-pip", folder, cwd=folder)
    python = folder / "bin" / "python"
    run(sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "pipx", "uv", cwd=folder)
    return folder / "bin"


def installed_by(tool: str, block: str, tools: Path, cwd: Path, tmp_path: Path) -> Path:
    """Run a tool's command of the page, and return the folder with the programs that it offers."""
    (command,) = [line for line in block.splitlines() if line.startswith(tool)]
    programs = tmp_path / "bin"
    folders = {"PIPX_HOME": "pipx", "PIPX_MAN_DIR": "man", "UV_TOOL_DIR": "uv"}
    variables = {name: str(tmp_path / folder) for name, folder in folders.items()}
    variables |= dict.fromkeys(("PIPX_BIN_DIR", "UV_TOOL_BIN_DIR"), str(programs))
    variables |= {"PIPX_DEFAULT_BACKEND": "pip", "PIPX_DEFAULT_PYTHON": sys.executable, "UV_PYTHON": sys.executable}
    run("bash", "-c", command, cwd=cwd, PATH=f"{tools}{os.pathsep}{os.environ['PATH']}", **variables)
    return programs


def assert_works_alone(programs: Path, folder: Path) -> None:
    """Assert that the programs run in a folder without the checkout, and use what the tool has installed."""
    version = wheel().name.split("-")[1]
    for name in PROGRAMS:
        assert f"{name} {version}\n" == run(programs / name, "--version", cwd=folder)
    python = (programs / "relay-client").resolve().with_name("python")
    shown = run(python, "-c", "import relay_client; print(relay_client.__file__)", cwd=folder)
    assert Path(shown).is_relative_to(folder)


def test_pipx_installs_the_wheel(tools: Path, tmp_path: Path) -> None:
    """Installed with pipx, the programs debug a job in a folder where the checkout cannot be found."""
    (tmp_path / "dist").mkdir()
    (tmp_path / "dist" / wheel().name).symlink_to(wheel())
    programs = installed_by("pipx", FROM_WHEEL, tools, tmp_path, tmp_path)
    assert_works_alone(programs, tmp_path)
    assert "every step above was checked" in run(programs / "relay-client", "demo", cwd=tmp_path)


def test_uv_installs_the_checkout(tools: Path, tmp_path: Path) -> None:
    """Installed with uv, the programs run in a folder where the checkout cannot be found."""
    assert_works_alone(installed_by("uv", FROM_CHECKOUT, tools, ROOT, tmp_path), tmp_path)
