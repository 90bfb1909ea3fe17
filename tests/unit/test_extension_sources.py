"""Facts about the sources of the extension: only `sinks.ts` gives texts, configurations and files to VS Code."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[2] / "vscode" / "src"
SINKS = "sinks.ts"
ALLOWED = {
    # The user's settings and files.
    *("ConfigurationTarget.Global", "ConfigurationTarget.Workspace", "workspace.asRelativePath"),
    *("window.activeTextEditor", "workspace.getConfiguration", "workspace.workspaceFolders"),
    "workspace.isTrusted",
    "Memento",
    *("workspace.onDidSaveTextDocument", "extensions.all.some", "extensions.getExtension"),
    # What VS Code calls, and events within the extension.
    *(
        "commands.registerCommand",
        "debug.registerDebugAdapterTrackerFactory",
        "debug.registerDebugConfigurationProvider",
    ),
    *("window.createTreeView", "window.registerTerminalLinkProvider", "window.registerUriHandler", "EventEmitter"),
    *("ThemeColor", "ThemeIcon", "DebugConfigurationProviderTriggerKind"),
    # Types.
    *("DebugAdapterTracker", "DebugAdapterTrackerFactory", "DebugConfiguration", "DebugConfigurationProvider"),
    *("DebugSession", "Disposable", "ExtensionContext", "TerminalLink", "TerminalLinkContext", "TerminalLinkProvider"),
    *("TextDocument", "TreeDataProvider", "TreeItem", "Uri", "UriHandler", "WorkspaceFolder"),
}
"""What other modules use of VS Code's API. A name that is added here must show, start and open nothing."""
CREATED = {"EventEmitter", "ThemeColor", "ThemeIcon"}
"""Classes of which other modules create objects."""


def detours(text: str) -> Iterator[str]:
    """Yield each use of VS Code's API in the text of a module that may go around `sinks.ts`."""
    code = re.sub(r"^import (?:type )?\* as vscode from 'vscode';$", "", re.sub(r"//.*", "", text), flags=re.MULTILINE)
    for match in re.finditer(r"(?:\bnew )?\bvscode\b((?:\.[A-Za-z]+)*)|require\('vscode'\)", code):
        name = (match[1] or "").removeprefix(".")
        if name not in (CREATED if match[0].startswith("new ") else ALLOWED):
            yield match[0]


@pytest.mark.parametrize("path", sorted(SOURCES.glob("*.ts")), ids=lambda path: path.name)
def test_texts_pass_the_rules(path: Path) -> None:
    """No other module shows a text, starts a session or opens a file through VS Code's API."""
    assert (path.name == SINKS) == bool([*detours(path.read_text())])


@pytest.mark.parametrize(
    "text",
    [
        "void vscode.window.showErrorMessage(event.text);",
        "const { window } = vscode;",
        "const window = vscode['window'];",
        "import { window } from 'vscode';",
        "const item = new vscode.TreeItem(node.host);",
        "const text = new vscode.MarkdownString(node.host);",
        "await vscode.debug.startDebugging(folder, found);",
        "vscode.env.openExternal(vscode.Uri.parse(node.run_url));",
    ],
)
def test_a_detour_is_found(text: str) -> None:
    """Each of these lines in another module is reported."""
    assert [*detours(f"import * as vscode from 'vscode';\n{text}\n")]


def test_sinks_create_no_markdown() -> None:
    """A MarkdownString could contain links that run commands."""
    assert not [path for path in SOURCES.glob("*.ts") if "new vscode.MarkdownString" in path.read_text()]


def test_settings_of_an_untrusted_folder() -> None:
    """A folder that is not trusted sets no setting but the one that only decides what the debugger steps into."""
    package = json.loads((SOURCES.parent / "package.json").read_text())
    restricted = package["capabilities"]["untrustedWorkspaces"]["restrictedConfigurations"]
    settings = package["contributes"]["configuration"]["properties"]
    assert {"relayDebug.justMyCode"} == settings.keys() - restricted
