"""Facts about the guide from nothing to a breakpoint on Azure: every command of its walk runs here, as it stands there.

`tests.rehearsal` has the shell and the steps, and describes what stands in for Azure.
"""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from tests.rehearsal.guide import CLUSTER, FENCES, GUIDE, LOCAL, ON_AZURE, PAGE, PORTS, SAMPLE, STEPS, Shell, roles
from tests.rehearsal.walk import Walk
from tests.samples.kit import (
    ROOT,
    breakpoint_hit,
    free_ports,
    needs_sdk,
)
from tests.support.azure.az_shim.kit import USER, FakeAzure
from tests.support.azure.cloud.cli import RealAz, needs_az
from tests.support.azure.cloud.kit import AzureOverHttp
from tests.support.azure.cloud.state import ROLE_NAMES
from tests.support.azure.entra import LISTENER, SECRETS_USER, SENDER
from tests.support.azure.network import clean_environment

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


@pytest.fixture(params=["stand-in", pytest.param("real-az", marks=needs_az)])
def shell(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    az: RealAz | None,
    tls_directory: Path,
) -> Iterator[Shell]:
    """A shell whose `az` is the stand-in, or the real one over the same small Azure."""
    clean_environment(monkeypatch)
    if az is None or request.param == "stand-in":
        with FakeAzure(tmp_path) as azure:
            yield Shell(azure, tmp_path)
        return
    with AzureOverHttp(tmp_path, tls_directory, az) as real:
        real.sign_out()
        real.roles_of_user = lambda resource: roles(real, USER).get(resource, [])
        yield Shell(real, tmp_path)
    assert [] == real.unknown


def test_the_page_has_nothing_else_to_type() -> None:
    """Whatever stands in a block of its own in the walk is one of the six that run here."""
    assert ["sh"] * 6 == [language for language, _ in FENCES]


def test_names_of_the_debugger() -> None:
    """The configurations that the page names are in launch.json, and relay-client opens the ports of all of them."""
    (link,) = re.findall(r"\[launch\.json\]\((.*?)\)", PAGE)
    written = json.loads((GUIDE.parent / link).read_text())
    known = {one["name"]: one["connect"]["port"] for one in written["configurations"]}
    assert known == {name: int(port) for name, port in re.findall(r"`(\w+ \((\d+)\))`", PAGE)}
    first, last = PORTS.split("-")
    assert list(range(int(first), int(last) + 1)) == sorted(known.values())
    assert "`all steps`" in PAGE
    assert ["all steps"] == [one["name"] for one in written["compounds"]]
    mapping = {"localRoot": "${workspaceFolder}/steps", "remoteRoot": "."}  # of the folder to open in VS Code
    assert [[mapping]] * 3 == [one["pathMappings"] for one in written["configurations"]]
    assert f"Open `{SAMPLE.relative_to(ROOT)}` in VS Code" in PAGE


def test_the_other_links() -> None:
    """The page refers to files that are there."""
    for link in re.findall(r"\]\(([^)#]+)\)", PAGE):
        assert (GUIDE.parent / link).is_file(), link


async def test_the_azure_side(shell: Shell) -> None:
    """The first two blocks make vault, namespace, hybrid connection and two secrets in an empty subscription.

    The cluster may listen and read its secret, the developer may send and read hers, and nobody may more. The command
    that may be refused once may be typed again, and then changes nothing.
    """
    out = await shell.run(ON_AZURE)
    assert "'alice' is ready." in out
    assert {"agent-listen", "client-send"} == shell.azure.hc()["rules"].keys()
    assert {"relay-alice-agent", "relay-alice-client"} == shell.azure.vault["secrets"].keys()
    given = [(who, ROLE_NAMES[role], scope.split("/")[-1]) for who, role, scope, _ in shell.azure.load()["roles"]]
    assert [
        (USER, "Key Vault Secrets Officer", "contoso-kv"),
        (CLUSTER, LISTENER, "alice"),
        (CLUSTER, SECRETS_USER, "relay-alice-agent"),
        (USER, SENDER, "alice"),
        (USER, SECRETS_USER, "relay-alice-client"),
    ] == given
    before = shell.azure.resources()
    only_last = re.sub(r"^az (group|keyvault) create .*\n", "", ON_AZURE, flags=re.MULTILINE)
    assert "nothing to change" in await shell.run(only_last)
    assert before == shell.azure.resources()


@pytest.mark.parametrize("word", ["azz login", "az login --please", "relay-client --please", "pipx install x"])
async def test_a_mistake_on_the_page_is_found(shell: Shell, word: str) -> None:
    """A command or an option that nobody knows ends a block with an error."""
    async with shell.running(f"{word}\ntrue") as typed:
        assert await typed.finish() in {2, 127}


@pytest.mark.e2e
@needs_sdk
@pytest.mark.parametrize(
    "shell", [pytest.param("real-az", marks=needs_az)], indirect=True
)  # `make rehearse-azure` uses the stand-in
async def test_from_nothing_to_a_breakpoint(shell: Shell, tmp_path: Path) -> None:
    """The page leads to a breakpoint in a step, with a connection string from Key Vault and with Entra ID alike.

    Agent and clients have nothing but what the page's commands have stored, and the roles that they have given.
    """
    walk = Walk(shell, tmp_path)
    await walk.create()
    await walk.debug()
    await walk.clean_up()
    assert 0 == walk.report.wrong


@pytest.mark.e2e
@needs_sdk
@pytest.mark.parametrize("shell", ["stand-in"], indirect=True)  # no `az` is called at all
async def test_without_a_subscription(shell: Shell) -> None:
    """The last block stops at a breakpoint in the first step with nothing of Azure; the others are tested elsewhere."""
    first = free_ports(6)
    async with shell.running(f"{LOCAL.rstrip()} --debug-port {first}") as local:
        await local.line(f"--- prepare, debugger port {first}")
        async with breakpoint_hit(first, STEPS / "prepare.py", "points = draw(100, rng)") as stop:
            assert "main" == await stop.function()
    assert [] == shell.azure.calls()


def test_what_is_installed() -> None:
    """What pip is asked to install is this checkout, with extras that it has, and they hold what the page runs."""
    commands = [shlex.split(line) for line in "".join(text for _, text in FENCES).splitlines() if "pip " in line]
    assert [["pip", "install"]] == [command[:2] for command in commands]
    project: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    (text,) = commands[0][2:]
    assert text.startswith(".[")
    requirement = Requirement(f"{project['name']}{text.removeprefix('.')}")
    assert requirement.extras <= extras.keys()
    assert "relay-client" in project["scripts"]
    assert {"client", "ml"} == requirement.extras
    installed = {Requirement(each).name for name in requirement.extras for each in extras[name]}
    installed |= {Requirement(each).name for each in project["dependencies"]}
    assert {"azure-ai-ml", "azure-identity", "azure-keyvault-secrets", "websockets"} <= installed
