"""An `az` to put on the PATH that answers `az account get-access-token` as the real one does."""

import json
import sys
import time
from pathlib import Path

from tests.support.azure.entra import RELAY, VAULT, Issuer

_SCRIPT = """\
#!{python}
import json, os, sys
with open({log!r}, "a") as log:
    log.write(json.dumps(sys.argv[1:]) + "\\n")
with open({answers!r}) as file:
    answers = json.load(file)
if answers["hang"]:
    os.execv("/bin/sleep", ["sleep", "3600"])
if answers["stderr"]:
    sys.exit(answers["stderr"])
print(json.dumps(answers["tokens"][sys.argv[sys.argv.index("--resource") + 1]]))
"""


class FakeAz:
    """A directory with an executable `az` in it and nothing else."""

    def __init__(self, directory: Path, issuer: Issuer) -> None:
        self.directory = directory / "bin"
        self.directory.mkdir()
        self._issuer = issuer
        self._log = directory / "az.log"
        self._answers = directory / "az.json"
        self.log_in()
        script = self.directory / "az"
        script.write_text(_SCRIPT.format(python=sys.executable, log=str(self._log), answers=str(self._answers)))
        script.chmod(0o755)

    @property
    def environment(self) -> dict[str, str]:
        """A PATH with this `az` and no other program."""
        return {"PATH": str(self.directory)}

    @property
    def calls(self) -> list[list[str]]:
        """The arguments of each call."""
        return [json.loads(line) for line in self._log.read_text().splitlines()] if self._log.exists() else []

    def log_in(self) -> None:
        """Sign in as somebody who has the issuer's roles; the tokens are new ones."""
        tokens = {resource: self._token(resource) for resource in (RELAY, VAULT)}
        self._write(tokens=tokens)

    def log_out(self) -> None:
        self._write(stderr="Please run 'az login' to setup account.")

    def fail(self, stderr: str) -> None:
        self._write(stderr=stderr)

    def hang(self) -> None:
        self._write(hang=True)

    def _token(self, resource: str) -> dict[str, object]:
        expires_on = int(time.time() + self._issuer.lifetime)
        return {
            "accessToken": self._issuer.token(resource),
            "expiresOn": time.strftime("%Y-%m-%d %H:%M:%S.000000", time.localtime(expires_on)),
            "expires_on": expires_on,
            "tokenType": "Bearer",
        }

    def _write(self, *, tokens: object = None, stderr: str = "", hang: bool = False) -> None:
        self._answers.write_text(json.dumps({"tokens": tokens, "stderr": stderr, "hang": hang}))
