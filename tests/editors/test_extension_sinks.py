"""Facts about what the extension gives to VS Code when jobs, agents and relays choose the texts, run by Node."""

import asyncio
import json
import re
import unicodedata
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from tests.support.editors.vscode.modules import EXTENSION, needs_esbuild, run_extension_modules
from tests.support.machine.deadline import DEADLINE

pytestmark = [pytest.mark.editors, needs_esbuild]

LINK = re.compile(r"""\[([^\]]+)\]\(((?:https?://|command:|file:)[^)\s]+)(?: (["'])(.+?)(\3))?\)""", re.IGNORECASE)
"""A link in a notification (VS Code: src/vs/base/common/linkedText.ts)."""
ICON = re.compile(r"(\\)?\$\([A-Za-z0-9\-~]+\)")
"""An icon in a label (VS Code: src/vs/base/browser/ui/iconLabel/iconLabels.ts)."""
SEND = "command:workbench.action.terminal.sendSequence?%7B%22text%22%3A%22id%5Cn%22%7D"
HOSTILE = [
    "${command:workbench.action.terminal.new}",
    "$\u200b{env:HSEC_SECRET}",
    "$${{env:HSEC_SECRET}}",
    "${" * 50 + "env:HSEC_SECRET" + "}" * 50,
    f"out of memory, see [details]({SEND})",
    f"[details]\u202e({SEND})",
    f"[details]\n({SEND})",
    f"[details\u2028]({SEND} 'a title')",
    f"[[a]({SEND})]({SEND})",
    f"[a](https://relay.example/){'[b](file:///etc/passwd)' * 40}",
    "$(trash~spin) $\u200b(trash) $$((trash))",
    "\x1b]0;title\x07\x1b[2J\x9b31m\r\nrelay-client: error: forged\u2029\u2066\udcff\ud800",
    "x" * 100_000,
    "\N{GRINNING FACE}" * 10_000,
    "",
]
NOT_TEXTS = [["${env:HSEC_SECRET}"], {"[a](command:b)": "$(trash)"}, None, 7]
ONE_LINE = {"configuration": 80, "notification": 600, "label": 200}
SEVERAL_LINES = {"tooltip": 2000, "document": 4_000_000}

GIVEN = """
import { readFileSync } from 'node:fs';
const given = JSON.parse(readFileSync(0, 'utf8'));
const print = (value) => console.log(JSON.stringify(value));
"""
RULES = f"""
import {{ textFor }} from './src/sinks';
{GIVEN}
const [names, texts] = given;
for (const name of names) for (const text of texts) print(textFor(name, text));
"""


def is_shown(char: str) -> bool:
    """Return whether a character is neither a control or format character nor half of a pair of surrogates."""
    return unicodedata.category(char) not in {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}


async def test_rules_of_the_sinks(tmp_path: Path) -> None:
    """No text has anything that VS Code interprets at this sink, and each text is short and printable."""
    limits, texts = {**ONE_LINE, **SEVERAL_LINES}, [*HOSTILE, *NOT_TEXTS]
    found = await run_extension_modules(RULES, tmp_path, given=[[*limits], texts])
    for (name, _given), text in zip(product(limits, texts), found, strict=True):
        assert len(text) <= limits[name]
        assert all(is_shown(char) for char in text if name in ONE_LINE or char not in "\n\t"), (name, text)
        assert name != "configuration" or re.fullmatch(r"[A-Za-z0-9_ .:()-]*", text)
        assert name != "notification" or (not LINK.search(text) and "[" not in text)
        assert name != "label" or not ICON.search(text)


async def test_texts_that_are_not_hostile(tmp_path: Path) -> None:
    """An ordinary text is shown as it is; in a notification, brackets are parentheses."""
    text = "rank 0 on vm-3 crashed: OSError: [Errno 28] No space left on device: '/scratch/\u00fcmlaut'"
    found = await run_extension_modules(
        RULES, tmp_path, given=[["notification", "label", "tooltip", "document"], [text]]
    )
    assert [text.replace("[", "(").replace("]", ")"), text, text, text] == found
    name = "rank 3 on vm-3.example_net (port 5678)"
    assert [name] == await run_extension_modules(RULES, tmp_path, given=[["configuration"], [name]])


STATE = f"""
{GIVEN}
const statusOf = (hostile) => {{
  const client = {{ id: '1a2b3c4d', pid: 1, hc: hostile, namespace: hostile, started: 1 }};
  const stop = {{ reason: hostile, since: 1, file: hostile, line: 1 }};
  const target = {{
    port: 5678, rank: 0, kind: 'stopped', text: hostile, place: hostile, script: hostile, stop, local_ports: [],
    attached_here: false,
  }};
  const node = {{
    agent: 'a1', host: hostile, link: hostile, link_reason: hostile, cwd: hostile,
    targets: [target, {{ ...target, port: 5679 }}],
    ended: [{{ port: 1, how: hostile }}],
  }};
  return {{ client, nodes: [node], ports: [{{ is_all_ranks: true, port: 5600 }}], connections: [] }};
}};
const statuses = given.map(statusOf);
const clients = {{
  statuses,
  ranks: statuses.map(({{ client, nodes: [node] }}) => ({{ client, node, target: node.targets[0] }})),
  onDidChange: (listener) => (clients.changed = listener),
  attach: async ({{ hc }}) => ({{ host: hc, local_port: 40000 }}),
  attachAll: async ({{ hc }}) => ({{ host: hc, local_port: 40001 }}),
  request: async ({{ hc }}) => ({{ text: hc, error: hc }}),
}};
"""

SESSIONS = f"""
import {{ calls, settings, workspace }} from 'vscode';
import {{ attach, attachAll, RankConfigurations }} from './src/configurations';
{STATE}
settings.remoteRoot = '${{env:OF_THE_USER}}';
const folder = {{ uri: {{ scheme: 'file', fsPath: '/home/alice/${{env:OF_THE_FOLDER}}' }} }};
workspace.workspaceFolders = [folder];
(async () => {{
  for (const rank of clients.ranks) await attach(rank);
  for (const status of statuses) await attachAll(status);
  const provider = new RankConfigurations(clients);
  const offered = provider.provideDebugConfigurations(folder);
  for (const each of offered) print(await provider.resolveDebugConfiguration(folder, each));
  for (const each of offered) print(each);
  for (const [name, [_folder, started]] of calls) if (name === 'debug.startDebugging') print(started);
}})();
"""


def variables(value: Any) -> list[str]:
    """Return the keys and texts of a configuration in which VS Code finds a variable."""
    if isinstance(value, dict):
        return [found for each in (*value.items(), *value) for found in variables(each)]
    if isinstance(value, list | tuple):
        return [found for each in value for found in variables(each)]
    return [value] if isinstance(value, str) and "${" in value else []


async def test_configurations(tmp_path: Path) -> None:
    """VS Code finds no variables in a configuration, in no key and no value, except those in the user's settings."""
    found = await run_extension_modules(SESSIONS, tmp_path, given=HOSTILE)
    assert 3 * 2 * len(HOSTILE) == len(found)
    for each in found:
        assert {"${env:OF_THE_USER}", "${workspaceFolder}"} == {*variables(each)}
        assert "127.0.0.1" == each["connect"]["host"]


VIEWS = f"""
import {{ calls }} from 'vscode';
import {{ pickRank }} from './src/links';
import {{ attach }} from './src/configurations';
import {{ chooseGroup }} from './src/groups';
import {{ showError, showProgress }} from './src/sinks';
import {{ StatusBar }} from './src/statusBar';
import {{ createRanksView }} from './src/tree';
{STATE}
(async () => {{
  const rows = createRanksView(clients).rows;
  const visit = (item) => {{
    if (item) print(['row', rows.getTreeItem(item)]);
    rows.getChildren(item).forEach(visit);
  }};
  visit(undefined);
  new StatusBar(clients);
  clients.changed();
  await pickRank(clients.ranks);
  for (const status of statuses) await chooseGroup(clients, status);
  for (const text of given) {{
    showError(new Error(text));
    await showProgress(text, async () => {{}});
  }}
  for (const {{ client, node, target }} of clients.ranks) {{
    await attach({{ client, node, target: {{ ...target, holder: node.host }} }});
  }}
  calls.forEach(print);
}})();
"""


def labels(name: str, given: Any) -> list[str]:
    """Return the texts of a call in which VS Code shows icons."""
    match name:
        case "row":
            return [given["label"], given["description"]]
        case "StatusBarItem.show":
            return [given[0].removeprefix("$(warning) ")]
        case "window.showQuickPick":
            return [text for item in given[0] for text in (item["label"], item["description"])]
        case "window.withProgress":
            return [given[0]["title"]]
    return []


async def test_views_and_notifications(tmp_path: Path) -> None:
    """Rows, lists, titles and the status bar show no icons of a peer, and notifications show no links."""
    found = await run_extension_modules(VIEWS, tmp_path, given=HOSTILE)
    assert not [text for name, given in found for text in labels(name, given) if ICON.search(text)]
    notifications = [given[0] for name, given in found if name == "window.showErrorMessage"]
    assert len(HOSTILE) + len([text for text in HOSTILE if text]) == len(notifications)
    assert not [text for text in notifications if LINK.search(text) or not all(map(is_shown, text))]
    assert {"row", "StatusBarItem.show", "window.showQuickPick", "window.withProgress"} <= {name for name, _ in found}


LAUNCHER = f"""
import {{ calls, settings }} from 'vscode';
import {{ Launcher }} from './src/launcher';
import {{ Documents }} from './src/sinks';
{GIVEN}
settings.command = process.execPath;
settings.arguments = ['-e', `console.error(${{JSON.stringify(given)}}); process.exit(3)`];
const launcher = new Launcher(new Documents('texts'));
launcher.start();
process.on('exit', () => calls.forEach(print));
"""


async def test_error_that_quotes_a_proxy(tmp_path: Path) -> None:
    """The last error of relay-client is shown without the link that a proxy or relay has put into it."""
    error = f"relay-client: error: cannot connect: HTTP 403 blocked, see [details]({SEND})\x1b[2J"
    calls = await run_extension_modules(LAUNCHER, tmp_path, given=error)
    texts = [given[0] for name, given in calls if name == "window.showErrorMessage"]
    assert [f"cannot connect: HTTP 403 blocked, see (details)({SEND}) (2J"] == texts
    written = "".join(given[0] for name, given in calls if name == "OutputChannel.append")
    assert f"see [details]({SEND})" in written
    assert "\x1b" not in written


PLAIN = """
import { notify, startDebugging, textFor, type Text } from './sinks';
declare const text: string;
export const needed: Text<'notification'> = textFor('label', text);
void startDebugging(undefined, { type: 'debugpy', request: 'attach', name: text });
void notify('Error', text);
"""


async def test_the_types_of_checked_texts(tmp_path: Path) -> None:
    """The compiler refuses a text for another sink, and a debug configuration that was not checked."""
    options = {"typeRoots": [str(EXTENSION / "node_modules" / "@types")], "rootDir": "/"}
    (tmp_path / "plain.ts").write_text(PLAIN.replace("./sinks", str(EXTENSION / "src" / "sinks")))
    settings = {"extends": str(EXTENSION / "tsconfig.json"), "compilerOptions": options, "include": ["plain.ts"]}
    (tmp_path / "tsconfig.json").write_text(json.dumps(settings))
    tsc = EXTENSION / "node_modules" / ".bin" / "tsc"
    process = await asyncio.create_subprocess_exec(tsc, "-p", tmp_path, stdout=asyncio.subprocess.PIPE)
    stdout, _ = await asyncio.wait_for(process.communicate(), DEADLINE)
    assert [("4", "TS2322"), ("5", "TS2345")] == re.findall(r"plain\.ts\((\d+),\d+\): error (TS\d+)", stdout.decode())
    assert 2 == stdout.count(b": error ")
