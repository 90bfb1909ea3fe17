"""A real VS Code: code-server, shown in a headless Chromium, with the extension `control` in it."""

import asyncio
import contextlib
import json
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.support.editors.vscode.control import ControlServer, control_server
from tests.support.editors.vscode.extension_package import pack
from tests.support.editors.vscode.installation import Installation
from tests.support.editors.vscode.window import Window
from tests.support.editors.vscode.workspace import Workspace
from tests.support.machine.deadline import DEADLINE
from tests.support.machine.ports import free_port
from tests.support.machine.programs import environment

if TYPE_CHECKING:
    from playwright.async_api import Browser

__all__ = ["Editor", "running_editor"]

EXTENSIONS = Path(__file__).parent / "extensions"
CHROMIUM_FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-sync",
)
SERVER_FLAGS = (
    *("--auth", "none", "--disable-telemetry", "--disable-update-check", "--disable-workspace-trust"),
    *("--disable-getting-started-override", "--disable-proxy"),
)
SETTINGS = {
    # Nothing that asks, advertises, moves or loads from a network; all that concerns debugging is as VS Code has it.
    "chat.disableAIFeatures": True,
    "editor.cursorBlinking": "solid",  # each repaint takes processor time
    "editor.minimap.enabled": False,
    "extensions.autoCheckUpdates": False,
    "extensions.autoUpdate": False,
    "extensions.ignoreRecommendations": True,
    "git.enabled": False,
    "remote.autoForwardPorts": False,
    "security.workspace.trust.enabled": False,
    "terminal.integrated.enablePersistentSessions": False,  # a new window does not get the task of one that failed
    "terminal.integrated.gpuAcceleration": "off",  # text in the page instead of pixels
    "telemetry.telemetryLevel": "off",
    "update.mode": "none",
    "workbench.enableExperiments": False,
    "workbench.secondarySideBar.defaultVisibility": "hidden",
    "workbench.startupEditor": "none",
    "workbench.tips.enabled": False,
}
VIEWPORT = {"width": 1500, "height": 1000}
END_TIMEOUT = 10.0
"""Seconds until a server that was asked to end is killed."""


class Editor:
    """A running server and browser with one window, which tests share: opening one takes longer than most of them.

    Args:
        url: Of the server.
        browser: That shows it.
        controls: Where its windows connect to.
        workspace: The folder that is shown.
        artefacts: A folder for what is kept of windows in which something failed.
        client_directory: RELAY_CLIENT_DIR of its extensions and terminals.
        scale: How many pixels of a screenshot each pixel of the window has on each side.
    """

    def __init__(
        self,
        url: str,
        browser: "Browser",
        controls: ControlServer,
        workspace: Workspace,
        artefacts: Path,
        client_directory: Path,
        scale: float = 1,
    ) -> None:
        self._url, self._browser, self._controls, self._artefacts = url, browser, controls, artefacts
        self._window: Window | None = None
        self.workspace = workspace
        self.client_directory = client_directory
        self._scale = scale

    @contextlib.asynccontextmanager
    async def window(self, *configurations: dict[str, Any], **more: Any) -> AsyncIterator[Window]:
        """Show the project with these launch configurations, without breakpoints and sessions.

        If the block fails, what the window shows is kept in a file, and the window is not used again.

        Args:
            configurations: Of launch.json; without any, the files in .vscode stay as they are.
            more: Other keys of launch.json.
        """
        if configurations:
            self.workspace.write_launch(list(configurations), **more)
        if self._window is None:
            self._window = await self._open()
        window = self._window
        try:
            await window.clear()
            yield window
        except BaseException:
            self._window = None
            await window.keep(self._artefacts / _current_test())
            await window.page.close()
            raise

    async def _open(self) -> Window:
        page = await self._browser.new_page(viewport=VIEWPORT, device_scale_factor=self._scale, reduced_motion="reduce")
        page.set_default_timeout(DEADLINE * 1000)
        await page.goto(f"{self._url}/?folder={self.workspace.folder}")
        window = Window(page, await self._controls.window(self.workspace.folder), self.workspace)
        await window.ready()
        return window


def _current_test() -> str:
    """Return the name of the running test, as pytest has it in the environment: `FILE::NAME (call)`."""
    return re.sub(r"[^\w.-]+", "-", os.environ.get("PYTEST_CURRENT_TEST", "none").split(" ")[0].rpartition("/")[2])


@contextlib.asynccontextmanager
async def running_editor(
    installation: Installation,
    directory: Path,
    artefacts: Path,
    *,
    extensions: Sequence[Path] = (),
    scale: float = 1,
) -> AsyncIterator[Editor]:
    """Run VS Code for a block.

    Args:
        installation: What to run.
        directory: For its data.
        artefacts: A folder for what is kept of windows in which something failed.
        extensions: More packages to install.
        scale: That of `Editor`.
    """
    from playwright.async_api import async_playwright

    packages = [installation.python_debugger or pack(EXTENSIONS / "python_debugger", directory), *extensions]
    packages.append(pack(EXTENSIONS / "control", directory))
    async with (
        control_server() as controls,
        _server(installation, directory, packages, controls.port) as url,
        async_playwright() as playwright,
    ):
        chromium = str(installation.chromium)
        browser = await playwright.chromium.launch(
            executable_path=chromium, args=CHROMIUM_FLAGS, timeout=DEADLINE * 1000
        )
        try:
            workspace = Workspace(directory / "project")
            yield Editor(url, browser, controls, workspace, artefacts, _client_directory(directory), scale)
        finally:
            await browser.close()


@contextlib.asynccontextmanager
async def _server(
    installation: Installation, directory: Path, packages: Sequence[Path], control_port: int
) -> AsyncIterator[str]:
    """Install the packages, run the server for a block, and yield its address."""
    settings = directory / "data" / "User" / "settings.json"
    settings.parent.mkdir(parents=True)
    path = f"{Path(sys.executable).parent}:${{env:PATH}}"  # terminals have the PATH of a login shell
    settings.write_text(json.dumps({**SETTINGS, "terminal.integrated.env.linux": {"PATH": path}}))
    files = ("--user-data-dir", directory / "data", "--extensions-dir", directory / "extensions")
    command = [str(part) for part in (installation.node, installation.code_server, *files)]
    command += ["--config", str(directory / "config.yaml")]
    variables = environment(
        RELAY_TESTS_CONTROL_PORT=str(control_port),
        RELAY_CLIENT_DIR=str(_client_directory(directory)),
        VSCODE_PROXY_URI="",
        EXTENSIONS_GALLERY='{"serviceUrl": ""}',
    )
    with (directory / "server.log").open("wb") as log:
        installing = [part for package in packages for part in ("--install-extension", str(package))]
        assert not await (await _start([*command, *installing], log.fileno(), variables)).wait(), _text(directory)
        port = free_port()
        address = ["--bind-addr", f"127.0.0.1:{port}", *SERVER_FLAGS]
        if installation.python_debugger:
            address += ["--enable-proposed-api", "ms-python.debugpy"]  # Microsoft's builds allow it in product.json
        server = await _start([*command, *address], log.fileno(), variables)
        try:
            await asyncio.wait_for(_accepts(port), DEADLINE)
            yield f"http://127.0.0.1:{port}"
        finally:
            await _end(server)


def _text(directory: Path) -> str:
    return (directory / "server.log").read_text(errors="replace")


def _client_directory(directory: Path) -> Path:
    return directory / "relay-clients"


async def _start(command: list[str], log: int, variables: dict[str, str]) -> asyncio.subprocess.Process:
    """Start a program in a group of its own, without a marketplace."""
    return await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log, env=variables, start_new_session=True
    )


async def _accepts(port: int) -> None:
    while True:
        with contextlib.suppress(OSError):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.close()
            return
        await asyncio.sleep(0.05)


async def _end(server: asyncio.subprocess.Process) -> None:
    """End the server's process group."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(server.pid, number)
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(server.wait(), END_TIMEOUT)
            return
