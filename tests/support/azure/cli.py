"""The real `az` of .azure-cli, ready to be called over and over."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from tests.support.az_shim.fake_az import Answer

ROOT = Path(__file__).parents[3]
PYTHON = ROOT / ".azure-cli" / "bin" / "python"
needs_az = pytest.mark.skipif(
    not (ROOT / ".azure-cli" / ".ready").exists(), reason="azure-cli is not installed: make extras"
)
STARTS_WITHIN = 120.0
"""Seconds for one call and for the start; both take less than one on an idle machine."""
QUIET = {"AZURE_CORE_COLLECT_TELEMETRY": "no", "AZURE_CORE_SURVEY_MESSAGE": "no", "AZ_INSTALLER": "PIP"}


class RealAz:
    """A process that has loaded azure-cli, with one folder for its configuration: what `az login` leaves is there."""

    def __init__(self, folder: Path) -> None:
        self.config = folder / "azure-config"
        self.config.mkdir()
        self._address = str(folder / "az.sock")
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(self._address)
            listener.listen()
            self._process = subprocess.Popen(
                [str(PYTHON), str(Path(__file__).with_name("fork_server.py"))],
                stdin=listener,
                stdout=subprocess.PIPE,
                env={"PATH": os.environ["PATH"], "AZURE_CONFIG_DIR": str(self.config), **QUIET},
                text=True,
            )

    def close(self) -> None:
        """End the process."""
        self._process.terminate()
        self._process.communicate()

    def call(self, arguments: Sequence[str], environment: Mapping[str, str], cwd: Path = ROOT) -> Answer:
        """Run one command to its end."""
        with _file() as out, _file() as err, socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(STARTS_WITHIN)
            connection.connect(self._address)
            call = {"argv": list(arguments), "env": self._environment(environment), "cwd": str(cwd)}
            connection.sendall(json.dumps({**call, "out": str(out), "err": str(err)}).encode() + b"\n")
            with connection.makefile() as stream:
                status = int(stream.readline())
            return Answer(status, out.read_text(), err.read_text())

    def _environment(self, given: Mapping[str, str]) -> dict[str, str]:
        kept = {name: value for name, value in given.items() if not name.startswith(("PYTHON", "AZURE_CONFIG"))}
        return {**kept, "AZURE_CONFIG_DIR": str(self.config), **QUIET}


@contextlib.contextmanager
def _file() -> Iterator[Path]:
    handle, name = tempfile.mkstemp()
    os.close(handle)
    try:
        yield Path(name)
    finally:
        Path(name).unlink()
