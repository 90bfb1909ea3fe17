"""Azure for the real `az`: the small Azure of a test behind HTTP, and the real program as `az` on the PATH."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path

from tests.support.azure.az_shim.fake_az import Answer
from tests.support.azure.az_shim.kit import FakeAzure
from tests.support.azure.cloud import providers, sign_in, vault_data
from tests.support.azure.cloud.arm import arm, graph
from tests.support.azure.cloud.cli import RealAz
from tests.support.azure.cloud.front import Front
from tests.support.azure.cloud.state import Refusal, State
from tests.support.azure.cloud.web import Reply, Request, refused
from tests.support.azure.entra import Issuer

assert providers.arm is arm  # importing it adds its routes


class AzureOverHttp(FakeAzure):
    """The same small Azure as FakeAzure's, and the real `az` in place of the stand-in.

    Args:
        folder: For this test alone.
        tls: Where the certificates are kept between tests.
        az: The loaded program; its configuration is that of this test while this test runs.
    """

    def __init__(self, folder: Path, tls: Path, az: RealAz) -> None:
        super().__init__(folder)
        self._az = az
        self._tls = tls
        self._folder = folder
        self.roles_of_user: Callable[[str], list[str]] = lambda _: []
        """The roles that a token for a resource carries."""
        self._refusals: list[tuple[str, re.Pattern[str], Refusal, list[int]]] = []

    def __enter__(self) -> AzureOverHttp:
        self._front = Front(self._tls, self._answer)
        super().__enter__()
        self._az.sign_in(self._environment_of_az({}))
        return self

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        self._front.close()

    @property
    def issuer(self) -> Issuer:
        """Who signs the tokens."""
        return self._az.issuer

    @property
    def state(self) -> State:
        """What the services work on."""
        return self._state

    @property
    def unknown(self) -> list[str]:
        """Requests that no service here knows."""
        return self._front.unknown

    def token(self, resource: str) -> str:
        """Return an access token of who is signed in."""
        return self._az.issuer.token(resource, oid=self._state["user"], roles=self.roles_of_user(resource))

    def sign_out(self) -> None:
        """Let `az login` be the first command."""
        self._az.forget()

    def refuse(self, method: str, path: str, refusal: Refusal, *, times: int = 1) -> None:
        """Let the next `times` requests whose path has this expression in it be refused."""
        self._refusals.append((method, re.compile(path, re.IGNORECASE), refusal, [times]))

    def call_az(self, command: str) -> Answer:
        """Carry out a command line that begins with `az`."""
        return self._carry(shlex.split(command.removeprefix("az ")), {})

    # --- what happens ---

    def _run_az(self, arguments: list[str], environment: dict[str, str]) -> Answer:
        return self._az.call(arguments, self._environment_of_az(environment))

    def _environment_of_az(self, given: dict[str, str]) -> dict[str, str]:
        """Return a shell's environment with the way here, and without a browser that `az login` could open."""
        kept = {name: value for name, value in given.items() if name not in {"BROWSER", "DISPLAY", "WAYLAND_DISPLAY"}}
        return {**kept, "HOME": str(self.home), "PATH": str(self.bin), **self._front.environment()}

    def _answer(self, asked: Request) -> Reply | None:
        with self._busy:
            if refusal := self._refusal(asked):
                return refused(refusal)
            if asked.host == sign_in.HOST:
                return sign_in.sign_in.answer(self, asked)
            if asked.host.endswith(".vault.azure.net"):
                if not self._known(asked.token, "https://vault.azure.net"):
                    return vault_data.challenge()
                return vault_data.vault_data.answer(self, asked)
            service = graph if asked.host == "graph.microsoft.com" else arm
            return service.answer(self, asked)

    def _known(self, token: str, resource: str) -> bool:
        return self._az.issuer.accepts(token, resource) is not None

    def _refusal(self, asked: Request) -> Refusal | None:
        for method, path, refusal, left in self._refusals:
            if method == asked.method and path.search(asked.path) and left[0] > 0:
                left[0] -= 1
                return refusal
        return None
