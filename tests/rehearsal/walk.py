"""The steps of the guide, from an empty subscription to a breakpoint and back."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.rehearsal.documents import Documents
from tests.rehearsal.guide import (
    AZURE_ML,
    CLEAN_UP,
    CREATE,
    PORTS,
    SAMPLE,
    SIGN_IN,
    STEPS,
    SUBMIT,
    WITH_ENTRA_ID,
    WITH_KEY_VAULT,
    Shell,
    asked_for,
    made_by,
)
from tests.rehearsal.report import Report
from tests.samples.kit import Running, breakpoint_hit, environment, free_ports, line_of, running
from tests.support.azure.cloud.state import ROLE_NAMES
from tests.support.azure.entra import RELAY, VAULT
from tests.support.azure.managed_identity import FakeManagedIdentity
from tests.support.azure.network import Azure
from tests.support.editors.stopped import Stopped
from tests.support.network.relay import recycle_listeners

PREPARE, IN_PREPARE = STEPS / "prepare.py", "points = draw(100, rng)"
FEATURIZE, IN_FEATURIZE = STEPS / "featurize.py", "return f"


@dataclass
class Cloud:
    """Azure as the commands have made it, as a job on the cluster and a laptop find it."""

    azure: Azure
    identity: FakeManagedIdentity

    @property
    def of_job(self) -> dict[str, str]:
        """The environment of a job on the cluster."""
        return environment(**self.azure.environment, **self.identity.azure_ml())


@dataclass
class Walk:
    """A reader of the guide: the shell, a folder for what the steps write, and what answers for `az`."""

    shell: Shell
    folder: Path
    report: Report = field(default_factory=Report)
    documents: Documents = field(default_factory=Documents)
    az: str = "the stand-in for az"
    first: int = field(default_factory=lambda: free_ports(6))
    """Port of the first step."""

    @property
    def ports(self) -> str:
        """The local ports of all steps."""
        return f"{self.first}-{self.first + 2}"

    @property
    def body(self) -> Path:
        """The body of the request to Azure ML."""
        return self.folder / "body.json"

    @property
    def certificates(self) -> Path:
        """Where the certificates of relay and vault are kept."""
        return self.folder / "azure"

    # --- what the steps need ---

    @contextlib.asynccontextmanager
    async def cloud(self, **of_relay: Any) -> AsyncIterator[Cloud]:
        """Run Azure as the commands have made it, with other fields of RelayConfig."""
        self.certificates.mkdir(exist_ok=True)
        async with made_by(self.shell, self.certificates, **of_relay) as (azure, identity):
            yield Cloud(azure, identity)

    @contextlib.asynccontextmanager
    async def job(
        self, cloud: Cloud, step: str, run: str = "run", more: str = "", **variables: str
    ) -> AsyncIterator[Running]:
        """Run a step as Azure ML would, on the cluster, with more arguments; the steps of a run share files."""
        folder = self.folder / run
        folder.mkdir(exist_ok=True)
        body = folder / "body.json"
        body.write_text(self.body.read_text().replace(f"python {step}.py", f"python {step}.py {more}"))
        command = (sys.executable, "-c", AZURE_ML, str(body), str(folder), step)
        async with running(*command, cwd=SAMPLE, env={**cloud.of_job, **variables}) as job:
            yield job

    # --- the steps ---

    async def create(self) -> None:
        """Sign in, create what the page creates, and build the job."""
        azure = self.shell.azure
        with self.report.step("az login, and the cluster") as answer:
            identity, nodes = (await self.shell.run(SIGN_IN)).split()[-2:]
            assert ("SystemAssigned", "4") == (identity, nodes)
            answer.text = f"{self.az} has a cluster with the identity {identity} and at most {nodes} nodes"
        with self.report.step("infra/create_relay.sh") as answer:
            assert "'alice' is ready." in await self.shell.run(CREATE)
            answer.text = f"{self.az} created 'alice' with the rules {' and '.join(azure.hc()['rules'])}"
        with self.report.step("roles") as answer:
            given = [f"{ROLE_NAMES[role]} on {scope.rpartition('/')[2]}" for _, role, scope, _ in azure.load()["roles"]]
            assert {"Azure Relay Listener on alice", "Key Vault Secrets User on relay-alice-agent"} <= {*given}
            answer.text = f"{self.az} assigned {', '.join(given)}"
        with self.report.step("secrets") as answer:
            names = sorted(azure.vault["secrets"])
            assert ["relay-alice-agent", "relay-alice-client"] == names
            answer.text = f"the stand-in for Key Vault holds {' and '.join(names)}"
        with self.report.step("submit.py --dry-run") as answer:
            self.body.write_text(await self.shell.run(f"{SUBMIT.rstrip()} --dry-run --debug-port {self.first}"))
            steps = ", ".join(json.loads(self.body.read_text())["properties"]["jobs"])
            answer.text = f"the real azure-ai-ml built and validated {steps}; nothing was submitted"

    async def debug(self) -> None:
        """Stop at a breakpoint in two steps, with connection strings from Key Vault and with Entra ID."""
        async with self.cloud() as cloud:
            async with self._client(WITH_KEY_VAULT) as client, self.job(cloud, "prepare") as job:
                await self._agent(cloud, client)
                async with self._breakpoint(self.first, PREPARE, IN_PREPARE) as stop:
                    assert ("main", "True") == (await stop.function(), await stop.value("options.is_debug"))
                    await self._interrupt(cloud, client, stop)
                await self._end(job)
            assert "TunnelKey" not in client.output + job.output  # nobody warns that there is none
            assert ["/secrets/relay-alice-client", "/secrets/relay-alice-agent"] == asked_for(cloud.azure)
            async with self._client(WITH_ENTRA_ID) as client, self.job(cloud, "featurize") as job:
                async with self._breakpoint(self.first + 1, FEATURIZE, IN_FEATURIZE) as stop:
                    assert ("featurize", "'part-00.csv'") == (await stop.function(), await stop.value("path.name"))
                await self._end(job)
            assert "/secrets/relay-alice-tunnel-key" in asked_for(cloud.azure)
        asked = [call["argv"] for call in self.shell.azure.calls() if "get-access-token" in call["argv"]]
        assert {RELAY, VAULT} == {argv[argv.index("--resource") + 1] for argv in asked}
        assert {VAULT} == {request["resource"] for request in cloud.identity.requests}

    async def clean_up(self) -> None:
        """Delete what was created; the page's last command deletes the group, which the stand-in does not know."""
        with self.report.step("infra/delete_relay.sh") as answer:
            await self.shell.run(CLEAN_UP.splitlines()[0])
            state = self.shell.azure.load()
            assert ({}, {}) == (state["namespaces"], self.shell.azure.vault["secrets"])
            answer.text = f"{self.az} has no namespace and no secret any more"

    @contextlib.asynccontextmanager
    async def _client(self, block: str) -> AsyncIterator[Running]:
        async with self.shell.running(block.replace(PORTS, self.ports)) as client:
            with self.report.step("relay-client") as answer:
                await client.line("relay-client: ready")
                what = "tunnel key" if block == WITH_ENTRA_ID else "connection string"
                answer.text = f"is ready, with its {what} from the stand-in for Key Vault, and tokens from {self.az}"
            yield client

    async def _agent(self, cloud: Cloud, client: Running) -> None:
        with self.report.step("the job's agent") as answer:
            await client.line("tunnel to ")
            assert {"/msi/token"} == {request["path"] for request in cloud.identity.requests}
            answer.text = "is listening, with its connection string from the stand-in for Key Vault, and a token "
            answer.text += "from the stand-in for the managed identity"

    @contextlib.asynccontextmanager
    async def _breakpoint(self, port: int, source: Path, code: str) -> AsyncIterator[Stopped]:
        async with contextlib.AsyncExitStack() as attached:
            with self.report.step("a debugger with a breakpoint") as answer:
                stop = await attached.enter_async_context(breakpoint_hit(port, source, code))
                place = f"{source.name}:{line_of(source, code)}"
                answer.text = f"the real debugpy stopped the job in {await stop.function()} at {place}"
            yield stop

    async def _interrupt(self, cloud: Cloud, client: Running, stop: Stopped) -> None:
        """Recycle the listener and cut all connections; the session at the breakpoint continues."""
        with self.report.step("the relay recycles the listener, as every 24 hours") as answer:
            recycle_listeners(cloud.azure.relay)
            assert "2" == await stop.value("1 + 1")
            self.documents.compare(answer, "A listener's connection is recycled", "the session continues")
        with self.report.step("every connection is cut") as answer:
            cloud.azure.relay.drop_all()
            logged = await client.line("reconnecting since")
            assert "4" == await stop.value("2 + 2")
            self.documents.compare(answer, "Azure's load balancers drop idle connections", logged)

    async def _end(self, job: Running) -> None:
        with self.report.step("the debugger detaches") as answer:
            assert 0 == await job.finish(), job.output
            answer.text = "the step ran to its end, with exit code 0"
