"""Facts about the images of the samples: what their Dockerfiles install, resolved and installed here by pip.

Neither Docker nor the base images are at hand: what is proven is what pip does with the requirements. PyTorch's index
for CPUs cannot be reached from the tests either: in place of torch itself, what torch needs is resolved with the rest.
"""

import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.samples.kit import NO_INDEX, ROOT, SAMPLES, environment, load, wheel
from tests.support.machine.deadline import DEADLINE

AZURE_ML = [SAMPLES / "azureml_pipeline" / "image", SAMPLES / "azureml_endpoint" / "image"]
DOCKERFILES = [*(image / "Dockerfile" for image in AZURE_ML), SAMPLES / "container" / "Dockerfile"]
DOCKERFILES += [SAMPLES / "kubernetes" / "Dockerfile"]
TIME_LIMIT = 6 * DEADLINE
"""For pip: without a cache it downloads wheels to read what they need."""

NEEDED_BY_TORCH = [
    "filelock",
    "fsspec>=0.8.5",
    "jinja2",
    "networkx>=2.5.1",
    "sympy>=1.13.3",
    "typing-extensions>=4.10.0",
]
"""What torch 2.15 needs and the index for CPUs has; torch from PyPI would bring 2.5 GB of CUDA libraries."""

samples_build = load(SAMPLES / "shared" / "build_wheel.py")


def pip(*arguments: str, python: str = sys.executable) -> subprocess.CompletedProcess[str]:
    """Run this environment's pip for an interpreter; a test that needs the index is skipped where there is none."""
    command = [sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=TIME_LIMIT, env=environment())
    if done.returncode and NO_INDEX.search(done.stderr):
        pytest.skip("the package index cannot be reached")
    return done


def interpreter(version: str) -> str:
    """Return a Python of this version, or skip the test."""
    found = subprocess.run([ROOT / ".ci" / "pythons"], capture_output=True, text=True, check=True).stdout.split()
    for python in found:
        shown = subprocess.run([python, "--version"], capture_output=True, text=True, check=True).stdout
        if shown.startswith(f"Python {version}."):
            return python
    pytest.skip(f"Python {version} is missing here")


@pytest.fixture
def context(tmp_path, monkeypatch):
    """Makes the build context of an image, which for pip lies where the image would have it."""

    def make(image: Path) -> Path:
        folder = tmp_path / "image"
        monkeypatch.setattr(samples_build, "IN_IMAGE", str(folder))
        folder.mkdir()
        context: Path = samples_build.build_context(image, folder, wheel())
        return context

    return make


def versions(report: Path) -> dict[str, str]:
    """The versions of the packages that pip would install."""
    chosen = [each["metadata"] for each in json.loads(report.read_text())["install"]]
    return {metadata["name"]: metadata["version"] for metadata in chosen}


def installed(context: Path) -> list[str]:
    """The requirements files that the Dockerfile of a context gives to pip, in order."""
    return re.findall(r"-r /image/(\S+)", (context / "Dockerfile").read_text())


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.parent.parent.name + "-" + path.parent.name)
def test_relay_debug_is_a_file(path):
    """Every image installs relay-debug from a wheel that it has copied."""
    text = path.read_text()
    assert "*.whl /image/\n" in text
    assert "-r /image/relay-debug.txt" in text or "pip install --no-cache-dir /image/*.whl" in text


def test_torch_without_cuda():
    """The pipeline's image takes torch from PyTorch's index for CPUs, and nothing else from there."""
    lines = (AZURE_ML[0] / "torch.txt").read_text().splitlines()
    assert ["--index-url https://download.pytorch.org/whl/cpu", "torch>=2.4"] == lines[1:]
    assert "index-url" not in (AZURE_ML[0] / "requirements.txt").read_text()
    assert ["torch.txt", "requirements.txt", "relay-debug.txt"] == installed(AZURE_ML[0])


@pytest.mark.parametrize("image", AZURE_ML, ids=lambda path: path.parent.name)
def test_requirements_resolve(image, context, tmp_path):
    """What the image of an Azure ML sample installs fits together in its Python, with the wheel of this checkout."""
    (version,) = re.findall(r" python=(\S+) ", (image / "Dockerfile").read_text())
    folder = context(image)
    names = [name for name in installed(folder) if name != "torch.txt"]
    assert ["requirements.txt", "relay-debug.txt"] == names
    wanted = [word for name in names for word in ("-r", str(folder / name))]
    if "torch.txt" in installed(folder):
        wanted += NEEDED_BY_TORCH
    report = tmp_path / "report.json"
    arguments = ["--dry-run", "--ignore-installed", "--report", str(report), *wanted]
    done = pip("install", *arguments, python=interpreter(version))
    assert 0 == done.returncode, done.stderr
    chosen = versions(report)
    expected = {line.split(">=")[0] for line in (image / "requirements.txt").read_text().splitlines() if line[0] != "#"}
    assert {*expected, "relay-debug", "websockets", "debugpy", "azure-identity"} <= chosen.keys()


def test_driver_packages(context):
    """The parallel step's image has the packages that Azure ML's driver imports."""
    text = (context(AZURE_ML[0]) / "requirements.txt").read_text()
    for name in ("azureml-core", "azureml-dataset-runtime", "mltable"):
        assert f"\n{name}>=" in text


def test_another_wheel_is_refused(context):
    """A wheel that is not the one that was built is not installed."""
    folder = context(AZURE_ML[1])
    arguments = ["install", "--dry-run", "--no-deps", "--no-index", "--ignore-installed", "-r"]
    accepted = pip(*arguments, str(folder / "relay-debug.txt"))
    assert 0 == accepted.returncode, accepted.stderr
    with (folder / wheel().name).open("ab") as file:
        file.write(b"more")
    refused = pip(*arguments, str(folder / "relay-debug.txt"))
    assert 1 == refused.returncode
    assert "DO NOT MATCH THE HASHES" in refused.stderr


@pytest.fixture(scope="module")
def again(tmp_path_factory):
    """What `build_wheel.py FOLDER` prints in a folder with an older wheel, and the folder; a build takes seconds."""
    folder = tmp_path_factory.mktemp("again")
    (folder / "relay_debug-0.0.1-py3-none-any.whl").touch()
    command = [sys.executable, SAMPLES / "shared" / "build_wheel.py", folder]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment(), timeout=DEADLINE)
    return done.stdout, folder


@pytest.mark.xdist_group("second_build")
def test_builds_are_the_same(again):
    """Two builds of one checkout give the same bytes, so an image is not built again without a reason."""
    built = again[1] / wheel().name
    assert wheel().read_bytes() == built.read_bytes()


@pytest.mark.xdist_group("second_build")
def test_older_wheels_go(again):
    """A new wheel takes the place of an older one, because a Dockerfile copies all that it finds."""
    folder = again[1]
    assert [folder / wheel().name] == list(folder.iterdir())


@pytest.mark.xdist_group("second_build")
def test_command_line(again):
    """`build_wheel.py FOLDER` prints where the wheel is, and its hash."""
    printed, folder = again
    built = folder / wheel().name
    assert f"{built} sha256:{samples_build.sha256(built)}\n" == printed


def test_a_registered_name_is_not_taken(tmp_path):
    """With an extra, too, pip takes the wheel that it was given, not a newer package of that name from an index."""
    newer = tmp_path / "relay_debug-99.0-py3-none-any.whl"
    with zipfile.ZipFile(newer, "w") as archive:
        metadata = "Metadata-Version: 2.1\nName: relay-debug\nVersion: 99.0\n"
        archive.writestr("relay_debug-99.0.dist-info/METADATA", metadata)
        archive.writestr("relay_debug-99.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr("relay_debug-99.0.dist-info/RECORD", "")
    report = tmp_path / "report.json"
    arguments = ["--dry-run", "--ignore-installed", "--find-links", str(tmp_path), "--report", str(report)]
    by_name = pip("install", *arguments, "--no-index", "--no-deps", "relay-debug")
    assert "relay-debug-99.0" in by_name.stdout
    done = pip("install", *arguments, f"{wheel()}[client]")
    assert 0 == done.returncode, done.stderr
    chosen = versions(report)
    assert wheel().name.split("-")[1] == chosen["relay-debug"]
    assert {"rich", "h11"} <= chosen.keys()
