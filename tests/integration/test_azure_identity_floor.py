"""Facts about the oldest azure-identity that relay-debug allows, which Azure ML's own packages bring into an image."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.support.machine.deadline import DEADLINE

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]
OLDEST = "1.17.0"
NO_INDEX = re.compile(
    r"NewConnectionError|ConnectTimeoutError|NameResolutionError|ReadTimeoutError|Max retries exceeded"
)
SUITES = ("tests/unit/relay_core/auth", "tests/integration/test_credentials.py")
MSAL_CACHE = "ignore:Use list:DeprecationWarning"
"""azure-identity 1.17.0 calls a function that newer versions of MSAL deprecate, and pip installs the two together."""

LEAVES_AZ = "tests/integration/test_credentials.py::test_an_az_that_is_of_no_help"
"""azure-identity 1.17.0 runs `az` under a shell and kills the shell alone, so the hanging `az` of this test outlives
the run, which the suite reports. Agents never run `az`, and only their images have 1.17.0."""


@pytest.fixture
def oldest(tmp_path: Path) -> Path:
    """A folder with azure-identity 1.17.0, which in front of PYTHONPATH takes the place of the installed one."""
    command = ["install", "--no-deps", "--target", str(tmp_path), f"azure-identity=={OLDEST}"]
    done = subprocess.run(
        [sys.executable, "-m", "pip", *command], capture_output=True, text=True, timeout=3 * DEADLINE, check=False
    )
    if done.returncode and NO_INDEX.search(done.stderr):
        pytest.skip("the package index cannot be reached")
    assert 0 == done.returncode, done.stderr
    return tmp_path


def test_declared_floor() -> None:
    """The oldest azure-identity that the package allows is the one that is tested here."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (floor,) = [one for one in map(Requirement, project["dependencies"]) if one.name == "azure-identity"]
    assert floor.specifier.contains(OLDEST)
    assert not floor.specifier.contains("1.16.99")


def test_credentials_with_the_oldest(oldest: Path) -> None:
    """The tests of credentials pass with azure-identity 1.17.0."""
    env = os.environ | {"PYTHONPATH": str(oldest)}
    show = "import azure.identity as a; print(a.__version__, a.__file__)"
    shown = subprocess.run(
        [sys.executable, "-c", show], env=env, capture_output=True, text=True, check=True, timeout=DEADLINE
    )
    assert [OLDEST, str(oldest / "azure" / "identity" / "__init__.py")] == shown.stdout.split()
    options = ["-q", "-n", "0", "-p", "no:cacheprovider", "-W", MSAL_CACHE, "--deselect", LEAVES_AZ]
    done = subprocess.run(  # some 150 tests, one after another
        [sys.executable, "-m", "pytest", *options, *SUITES],
        cwd=ROOT, env=env, capture_output=True, text=True, timeout=6 * DEADLINE, check=False,
    )  # fmt: skip
    assert 0 == done.returncode, done.stdout[-6000:]
