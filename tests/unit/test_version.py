"""Facts about the version: pyproject.toml has it, and npm's files repeat it because npm needs a copy."""

import json
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
STATED = r"relay[-_](debug|client|agent|server)[-= ]+v?[0-9]+\.[0-9]+"
"""`relay_debug-1.2.3-py3-none-any.whl`, `relay-debug==1.2.3`, `relay-client 1.2.3`."""


def test_the_extension_has_the_version_of_the_package() -> None:
    """package.json and both places of package-lock.json have the version of pyproject.toml."""
    (version,) = re.findall(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    package, lock = (json.loads((ROOT / "vscode" / name).read_text()) for name in ("package.json", "package-lock.json"))
    assert {version} == {package["version"], lock["version"], lock["packages"][""]["version"]}


def test_nothing_else_states_a_version() -> None:
    """No document, program or sample names a version of the package, so a release changes no other file."""
    places = ("relay_*", "docs", "infra", "samples", "vscode", "*.md", "*.yml", "*.yaml", "Makefile", ":!CHANGELOG.md")
    found = subprocess.run(
        ["git", "grep", "-nIE", STATED, "--", *places], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (1, "") == (found.returncode, found.stdout)
