"""The real `az` of .azure-cli, ready to be called over and over."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from tests.support.azure.az_shim.fake_az import Answer
from tests.support.azure.entra import Issuer
from tests.support.machine.deadline import DEADLINE
from tests.support.machine.fork_server import fork_server

ROOT = Path(__file__).parents[4]
PYTHON = ROOT / ".azure-cli" / "bin" / "python"


def is_installed() -> bool:
    """Whether `make extras` has installed azure-cli."""
    return (ROOT / ".azure-cli" / ".ready").exists()


needs_az = pytest.mark.skipif(not is_installed(), reason="azure-cli is not installed: make extras")
QUIET = {"AZURE_CORE_COLLECT_TELEMETRY": "no", "AZURE_CORE_SURVEY_MESSAGE": "no", "AZ_INSTALLER": "PIP"}


@contextlib.contextmanager
def loaded_az(folder: Path) -> Iterator[RealAz]:
    """Load azure-cli, and end its process at the end of the block."""
    (config := folder / "azure-config").mkdir()
    env = {"PATH": os.environ["PATH"], "AZURE_CONFIG_DIR": str(config), **QUIET}
    with fork_server(folder, PYTHON, Path(__file__).with_name("forked_az.py"), env) as address:
        yield RealAz(folder, config, address)


class RealAz:
    """A process that has loaded azure-cli, with one folder for its configuration: what `az login` leaves is there.

    The tests of one process take turns with it. Its tokens are those of `issuer`.
    """

    def __init__(self, folder: Path, config: Path, address: str) -> None:
        self.issuer = Issuer()
        self.config = config
        self._signed_in = folder / "signed-in"
        self._address = address

    def forget(self) -> None:
        """Begin with no configuration: nobody is signed in."""
        shutil.rmtree(self.config)
        self.config.mkdir()

    def expire(self) -> None:
        """Let all tokens but the refresh token be past their time."""
        path = self.config / "msal_token_cache.json"
        cache = json.loads(path.read_text())
        path.write_text(json.dumps(cache | {"AccessToken": {}}))

    def sign_in(self, environment: Mapping[str, str]) -> None:
        """Begin with a configuration of somebody who has signed in, by `az login` the first time."""
        if self._signed_in.exists():
            shutil.rmtree(self.config)
            shutil.copytree(self._signed_in, self.config)
            return
        self.forget()
        done = self.call(["login", "--output", "none"], environment)
        assert 0 == done.code, done.err
        shutil.copytree(self.config, self._signed_in)

    def call(self, arguments: Sequence[str], environment: Mapping[str, str], cwd: Path = ROOT) -> Answer:
        """Run one command to its end."""
        with _file() as out, _file() as err, socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(DEADLINE)
            connection.connect(self._address)
            call = {"argv": list(arguments), "env": self._environment(environment), "cwd": str(cwd)}
            connection.sendall(json.dumps({**call, "out": str(out), "err": str(err)}).encode() + b"\n")
            with connection.makefile() as stream:
                status = int(stream.readline())
            return Answer(status, out.read_bytes().decode(), err.read_bytes().decode())

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
