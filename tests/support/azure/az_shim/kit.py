"""What a test of infra/ holds in its hands: a small Azure, a way to run a script in it, and what `az` saw."""

from __future__ import annotations

import copy
import itertools
import os
import subprocess
import threading
from pathlib import Path
from typing import Any

from tests.support.azure.az_shim.fake_az import Answer, answer
from tests.support.azure.az_shim.service import Service
from tests.support.azure.cloud import state
from tests.support.azure.cloud.state import sas_key
from tests.support.azure.entra import RELAY, VAULT, Issuer
from tests.support.machine.deadline import DEADLINE

INFRA = Path(__file__).parents[4] / "infra"

AGENT, CLIENT, TUNNEL_KEY = "relay-alice-agent", "relay-alice-client", "relay-alice-tunnel-key"
"""Names of the secrets of hybrid connection `alice`."""
PRINCIPAL = "11111111-2222-3333-4444-555555555555"
"""Object id of who gets roles."""

USER = state.USER
"""Object id of who is signed in."""

CONFLICT = (
    "(MessagingGatewayTooManyRequests) SubCode=40901. Another conflicting operation is in progress. "
    "Wait for current operation to complete."
)
"""Azure's answer to overlapping writes of rules: HTTP 429."""


class FakeAzure:
    """One subscription with a resource group `debug-rg` and a Key Vault `contoso-kv`, for one test."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        self.bin = folder / "bin"
        self.tmp = folder / "tmp"
        for path in (self.home, self.bin, self.tmp):
            path.mkdir()
        self._state: dict[str, Any] = state.new()
        self._calls: list[dict[str, Any]] = []
        self._busy = threading.Lock()
        self._unanswered: dict[str, threading.Event] = {}
        self._over = threading.Event()

    def __enter__(self) -> FakeAzure:
        self._service = Service(self._carry)
        self._service.install(self.bin)
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._service.close()

    def _carry(self, arguments: list[str], environment: dict[str, str]) -> Answer:
        """Record and carry out one call of `az`."""
        self._calls.append({"argv": arguments, "env": environment})
        if reached := self._unanswered.get(_command(arguments)):
            reached.set()
            self._over.wait()
        return self._run_az(arguments, environment)

    def _run_az(self, arguments: list[str], environment: dict[str, str]) -> Answer:
        with self._busy:
            return answer(self._state, arguments)

    # --- Azure as it is ---

    def load(self) -> dict[str, Any]:
        """A copy of the whole state; see `__init__`."""
        return copy.deepcopy(self._state)

    def save(self, state: dict[str, Any]) -> None:
        """Replace the whole state."""
        self._state = copy.deepcopy(state)

    def change(self, **values: Any) -> None:
        """Replace top-level parts of the state."""
        self.save({**self.load(), **values})

    @property
    def vault(self) -> dict[str, Any]:
        """The Key Vault: `secrets` (name to list of versions), `deleted`, `forbidden` (get, set, delete)."""
        vault: dict[str, Any] = self.load()["vaults"]["contoso-kv"]
        return vault

    def change_vault(self, **values: Any) -> None:
        """Replace parts of the Key Vault."""
        self.change(vaults={"contoso-kv": {**self.vault, **values}})

    def secret(self, name: str) -> str:
        """The newest version of a secret."""
        return str(self.vault["secrets"][name][-1])

    def hc(self, name: str = "alice", namespace: str = "contoso-debug") -> dict[str, Any]:
        """One hybrid connection: `authorized`, `listeners`, `rules` (name to rights, PrimaryKey, SecondaryKey)."""
        found: dict[str, Any] = self.load()["namespaces"][namespace]["hcs"][name]
        return found

    def change_hc(self, name: str = "alice", **values: Any) -> None:
        """Replace parts of a hybrid connection."""
        state = self.load()
        state["namespaces"]["contoso-debug"]["hcs"][name].update(values)
        self.save(state)

    def resources(self) -> dict[str, Any]:
        """All that exists, without what the shim keeps for itself."""
        state = self.load()
        return {key: state[key] for key in ("groups", "namespaces", "vaults", "roles")}

    def log_in(self, issuer: Issuer) -> None:
        """Sign in as somebody who has the issuer's roles; the tokens are new ones."""
        self.change(signed_in=True, tokens={resource: issuer.printed(resource) for resource in (RELAY, VAULT)})

    def inject(self, command: str, text: str, *, code: int = 1, times: int = 1, skip: int = 0) -> None:
        """Let the next `times` calls of `command` fail with `text`, after `skip` good ones."""
        fault = {"command": command, "text": text, "exit": code, "times": times, "skip": skip}
        self.change(faults=[*self.load()["faults"], fault])

    def hang(self, command: str) -> threading.Event:
        """Leave calls of `command` unanswered; what is returned is set when there is one."""
        return self._unanswered.setdefault(command, threading.Event())

    # --- running scripts ---

    @property
    def path(self) -> dict[str, str]:
        """A PATH with this `az` and no other program."""
        return {"PATH": str(self.bin)}

    def environment(self) -> dict[str, str]:
        """A shell's environment with the fake `az` first on the PATH and no pause between tries."""
        return {
            "PATH": f"{self.bin}:{os.environ['PATH']}",
            "HOME": str(self.home),
            "TMPDIR": str(self.tmp),
            "RELAY_INFRA_RETRY_SECONDS": "0",
        }

    def run(self, script: str, *arguments: str, trace: bool = False, **environment: str) -> Answer:
        """Run infra/`script` without a terminal; `trace` runs it as `bash -x`."""
        command = ["bash", *(["-x"] if trace else []), str(INFRA / script), *arguments]
        done = subprocess.run(
            command,
            env={**self.environment(), **environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=DEADLINE,
            check=False,
        )
        return Answer(done.returncode, done.stdout, done.stderr)

    # --- what az saw ---

    def calls(self) -> list[dict[str, Any]]:
        """Each call's argv and env, in order."""
        return list(self._calls)

    def commands(self) -> list[str]:
        """Each call's words before its first option, in order."""
        return [_command(call["argv"]) for call in self.calls()]

    def forget_calls(self) -> None:
        """Start a new record."""
        self._calls.clear()

    def key_material(self) -> set[str]:
        """Every SAS key ever issued and every tunnel key ever stored, as text."""
        state = self.load()
        keys = {sas_key(number) for number in range(1, state["keys"] + 1)}
        for vault in state["vaults"].values():
            for versions in [*vault["secrets"].values(), *vault["deleted"].values()]:
                keys.update(field(text, "TunnelKey") or text for text in versions)  # a tunnel key may stand alone
        for deployment in state["deployments"]:
            keys.update(deployment["tunnelKeys"].values())
        return keys - {""}


def field(connection_string: str, name: str) -> str:
    """One field of a connection string, or an empty text."""
    parts = dict(part.split("=", 1) for part in connection_string.split(";") if "=" in part)
    return parts.get(name, "")


def _command(arguments: list[str]) -> str:
    """Return the words before the first option."""
    return " ".join(itertools.takewhile(lambda word: not word.startswith("-"), arguments))
