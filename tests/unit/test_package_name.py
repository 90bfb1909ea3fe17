"""Facts about the package's name, which is not registered on a package index: nothing here takes it from one."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
INSTALL = re.compile(
    r"\b(?:pip3?|pipx|conda|mamba|poetry|uv(?: pip| tool)?)\s+(?:install|add|download|wheel|inject)\b[^\n`]*?"
    r"(?<![\w./-])relay[-_]debug\b(?!-\d)"
)
"""A command that names the package; a file (`./relay_debug-0.1.0...whl`) is not the bare name."""
REQUIREMENT = re.compile(
    r"^\s*(?:-\s+)?[\"']?relay[-_]debug(?:\[[\w,\s-]*\])?\s*(?:[<>=!~]=?[^@\n]*)?[\"']?\s*,?\s*(?:[;#].*)?$",
    re.MULTILINE,
)
"""A line of a requirements file, of a conda environment or of a list of dependencies."""
REQUIREMENT_FILES = {".txt", ".in", ".yaml", ".yml", ".toml", ".cfg"}


def tracked() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [ROOT / name for name in listed.split("\0") if name and (ROOT / name).is_file()]


def fetches(path: Path, text: str) -> list[str]:
    """The places where a file makes a package manager look for the name on an index."""
    found = [match[0] for match in INSTALL.finditer(text.replace("\\\n", " "))]
    if path.suffix in REQUIREMENT_FILES:
        # An extra of this project that names another one is resolved to the same wheel or checkout.
        own = path == ROOT / "pyproject.toml"
        found += [match[0].strip() for match in REQUIREMENT.finditer(text) if not (own and "[" in match[0])]
    return found


def test_nothing_fetches_the_name() -> None:
    """No command, Dockerfile or requirements file of the repository fetches relay-debug from an index."""
    places = {}
    for path in tracked():
        if path == Path(__file__) or path.suffix in {".png", ".ico", ".svg"}:
            continue
        if found := fetches(path, path.read_text(errors="replace")):
            places[str(path.relative_to(ROOT))] = found
    assert {} == places


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("README.md", "pip install relay-debug"),
        ("README.md", "pip install 'relay-debug[client]'"),
        ("README.md", "pip install azureml-inference-server-http 'relay-debug[client,server]'"),
        ("README.md", "python -m pip install --upgrade \\\n    relay_debug"),
        ("README.md", "uv pip install relay-debug==0.1.0"),
        ("Dockerfile", "RUN pip install --no-cache-dir relay-debug"),
        ("requirements.txt", "torch\nrelay-debug>=0.1\n"),
        ("requirements.txt", "relay-debug[client]  # the laptop\n"),
        ("conda.yaml", "  - pip:\n      - relay-debug>=0.1\n"),
    ],
)
def test_the_name_alone_is_found(name: str, text: str) -> None:
    """Each way to ask an index for the name is found."""
    assert 1 == len(fetches(ROOT / name, text))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("README.md", "pip install '.[client]'"),
        ("README.md", "pip install './relay_debug-0.1.0-py3-none-any.whl[client]'"),
        ("README.md", "pip install dist/relay_debug-0.1.0-py3-none-any.whl"),
        ("README.md", "Do not `pip install` the name `relay-debug`."),
        ("Dockerfile", "RUN pip install --no-cache-dir -r /image/relay-debug.txt"),
        ("relay-debug.txt", "relay-debug @ file:///image/relay_debug-0.1.0-py3-none-any.whl#sha256=0123\n"),
        ("policy.yaml", "  name: relay-debug\n"),
    ],
)
def test_files_are_no_names(name: str, text: str) -> None:
    """A checkout, a wheel and a pinned file are not mistaken for the name."""
    assert [] == fetches(ROOT / name, text)
