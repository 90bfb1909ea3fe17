"""Facts about the files on this machine that the extension opens and starts, run by Node."""

import os
from pathlib import Path
from typing import Any

import pytest

from tests.support.editors.vscode.modules import needs_esbuild, run_extension_modules

pytestmark = [pytest.mark.editors, needs_esbuild]

READ = """
import { readFileSync } from 'node:fs';
import { findProgram, localFile } from './src/localFiles';
const given = JSON.parse(readFileSync(0, 'utf8'));
const print = (value) => console.log(JSON.stringify(value ?? null));
"""
FILES = f"""{READ}
(async () => {{ for (const name of given.names) print(await localFile(name, given.cwd, given.folders)); }})();
"""
PROGRAMS = f"""{READ}
process.env.PATH = given.path;
if (given.platform) Object.defineProperty(process, 'platform', {{ value: given.platform }});
(async () => {{
  for (const command of given.commands) print(await findProgram(command, given.folders, given.trusted));
}})();
"""
COMMANDS = f"""{READ}
import {{ calls, registered, settings, workspace }} from 'vscode';
import {{ activate }} from './src/extension';
process.env.RELAY_CLIENT_DIR = given.folder;
process.env.PATH = given.path;
workspace.workspaceFolders = [{{ uri: {{ scheme: 'file', fsPath: given.folder }} }}];
settings.arguments = ['--ports', '5678'];
activate({{ subscriptions: [] }});
const node = {{ cwd: '/home/job/run' }};
const written = () => calls.filter(([name]) => name === 'OutputChannel.append').map(([, [text]]) => text).join('');
(async () => {{
  for (const file of given.names) {{
    const target = {{ stop: {{ file, line: 3 }} }};
    await registered['relayDebug.openPlace']({{ kind: 'rank', rank: {{ node, target }} }});
  }}
  for (const [name, [found]] of calls) if (name.startsWith('window.show')) print([name, found.fsPath ?? found]);
  await registered['relayDebug.start']();
  while (!written().includes('started')) await new Promise((resolve) => setTimeout(resolve, 10));
  print(written());
  process.exit();
}})();
"""
FRAMES = f"""{READ}
import {{ frameLinks }} from './src/localFiles';
const shown = ({{ start, length, file, line }}) => [given.text.slice(start, start + length), file, line];
(async () => {{ print((await frameLinks(given.text, given.cwds, given.folders)).map(shown)); }})();
"""
CONNECTIONS = f"""{READ}
import {{ connectionOptions }} from './src/localFiles';
(async () => {{
  for (const file of given.files) print(await connectionOptions(file, given.folder).catch(({{ message }}) => message));
}})();
"""
START = f"""{READ}
import {{ calls, installed, registered, settings, workspace }} from 'vscode';
import {{ activate }} from './src/extension';
process.env.RELAY_CLIENT_DIR = given.folder;
process.env.PATH = '/nowhere';
workspace.workspaceFolders = [{{ uri: {{ scheme: 'file', fsPath: given.folder }} }}];
Object.assign(settings, {{ arguments: ['--ports', '5678'], ...given.settings }});
const environments = {{ getActiveEnvironmentPath: () => ({{ path: given.selected.shift() ?? 'python' }}) }};
if (given.selected) installed['ms-python.python'] = {{ activate: async () => ({{ environments }}) }};
activate({{ subscriptions: [] }});
const written = () => calls.filter(([name]) => name === 'OutputChannel.append').map(([, [text]]) => text).join('');
(async () => {{
  await registered['relayDebug.start']();
  while (given.until && !written().includes(given.until)) await new Promise((resolve) => setTimeout(resolve, 10));
  print(written());
  for (const [name, given] of calls) if (/^(window.showE|commands.e)/.test(name)) print(given);
  process.exit();
}})();
"""
WINDOWS = {
    "node:path": "module.exports = require('path').win32;",
    "node:fs/promises": """
        const look = async (file) => (console.log(JSON.stringify(file)), { isFile: () => given.includes(file) });
        const given = (process.argv[2] ?? '').split(';');
        module.exports = { stat: look, realpath: async (file) => file, access: async () => {}, constants: {} };
    """,
}
"""Windows' paths, and files that print each path that is looked up; the arguments are the files that exist."""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder that is open in the editor, with files in it and beside it."""
    for name in ("project/train.py", "project/models/net.py", "project-b/other.py", "secret.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    return tmp_path / "project"


async def opened(project: Path, to: Path, *names: str, remote_root: str = ".") -> list[str | None]:
    """Return the file that is opened for each name that a job may give."""
    given = {"names": names, "cwd": "/home/job/run", "folders": [{"root": str(project), "remoteRoot": remote_root}]}
    return await run_extension_modules(FILES, to, given=given)


async def test_files_in_the_folder(project: Path, tmp_path: Path) -> None:
    """A file is found by its path on this machine, also below the folder's real path, and by its path on the node."""
    link = tmp_path / "link"
    link.symlink_to(project)
    here, on_node = project / "train.py", "/home/job/run/models/net.py"
    assert [str(here), str(project / "models/net.py")] == await opened(project, tmp_path, str(here), on_node)
    assert [str(link / "train.py")] == await opened(link, tmp_path, str(here))
    found = await opened(project, tmp_path, "/code/train.py", on_node, remote_root="/code")
    assert [str(here), None] == found


async def test_files_elsewhere(project: Path, tmp_path: Path) -> None:
    """A job cannot name a file outside the folder, a file that does not exist, a directory or an address."""
    os.mkfifo(project / "pipe")
    names = [
        str(tmp_path / "secret.txt"),
        f"{project}/../secret.txt",
        str(tmp_path / "project-b" / "other.py"),
        "/home/job/run/../../../secret.txt",
        "/home/job/run/models/../../secret.txt",
        "/etc/passwd",
        "/home/job/run/missing.py",
        *(str(project), str(project / "models"), str(project / "pipe")),
        *("train.py", "", "\0", f"{project}/train.py\0", "<string>", "x" * 100_000),
        *(r"\\server\share\train.py", "//server/share/train.py", f"file://{project}/train.py", "command:x"),
    ]
    assert [None] * len(names) == await opened(project, tmp_path, *names)


async def test_windows_looks_up_no_server(tmp_path: Path) -> None:
    """On Windows, a name of a share or device is not looked up, because that alone sends the user's credentials."""
    names = [
        *(r"\\server\share\x.py", "//server/share/x.py", r"\\?\UNC\server\share\x.py", r"\\.\pipe\x", r"\server\x.py"),
        *(r"/home/job/run/\\server\share\x.py", r"/home/job/run/..\..\x.py", "/home/job/run/D:/x.py", r"D:\x.py"),
        r"C:\project\..\other\x.py",
    ]
    folder = {"root": r"C:\project", "remoteRoot": "."}
    given = {"names": [r"C:\project\train.py", *names], "cwd": "/home/job/run", "folders": [folder]}
    found = await run_extension_modules(FILES, tmp_path, r"C:\project\train.py", given=given, instead=WINDOWS)
    looked_up = {text for text in found if text}
    assert r"C:\project\train.py" in looked_up
    assert [] == [text for text in looked_up if not text.startswith("C:\\project\\")]


def program(path: Path, mode: int = 0o755, text: str = "") -> str:
    """Create a program that prints a text."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho {text}\n")
    path.chmod(mode)
    return str(path)


async def started(to: Path, *commands: str, **given: Any) -> list[str | None]:
    """Return the program that is started for each value of the setting."""
    return await run_extension_modules(PROGRAMS, to, given={"commands": commands, "trusted": True, **given})


async def test_program_on_the_path(tmp_path: Path) -> None:
    """A name is looked up in the absolute directories of PATH only, as an absolute path of an executable file."""
    folder = tmp_path / "project"
    program(folder / "relay-client")
    (tmp_path / "a" / "relay-client").mkdir(parents=True)
    program(tmp_path / "b" / "relay-client", 0o644)
    wanted = program(tmp_path / "c" / "relay-client")
    path = f":.:project:{tmp_path}/a:{tmp_path}/b:{tmp_path}/c"
    names = "relay-client", "", ".", "missing"
    assert [wanted, None, None, None] == await started(tmp_path, *names, folders=[str(folder)], path=path)


async def test_program_in_the_folder(tmp_path: Path) -> None:
    """A program in the folder is started only if the folder is trusted."""
    folder = tmp_path / "project"
    inside = program(folder / ".venv/bin/relay-client")
    given = {"folders": [str(folder)], "path": str(folder / ".venv/bin")}
    commands = ".venv/bin/relay-client", inside, "relay-client"
    assert [inside] * 3 == await started(tmp_path, *commands, **given)
    assert [None] * 3 == await started(tmp_path, *commands, **given, trusted=False)
    assert [None] == await started(tmp_path, commands[0], folders=[], path="")


async def test_windows_starts_no_program_of_the_folder(tmp_path: Path) -> None:
    """On Windows, the directories of PATH are looked up, and the current directory is not."""
    existing = r"C:\project\relay-client.exe;C:\Python\Scripts\relay-client.exe"
    given = {"commands": ["relay-client"], "folders": [r"C:\project"], "trusted": False, "platform": "win32"}
    given["path"] = r";.;scripts;C:\project;C:\Windows;C:\Python\Scripts"
    found = await run_extension_modules(PROGRAMS, tmp_path, existing, given=given, instead=WINDOWS)
    wanted = r"C:\Python\Scripts\relay-client.exe"
    assert [r"C:\Windows\relay-client.exe", wanted, wanted] == found


async def test_commands_of_the_extension(project: Path, tmp_path: Path) -> None:
    """Clicking a stopped rank opens only a file in the folder, and relay-client is started by an absolute path."""
    names = [str(tmp_path / "secret.txt"), str(project / "train.py")]
    for folder, text in ((project, "started in the folder"), (tmp_path / "bin", "started")):
        program(folder / "relay-client", text=text)
    given = {"folder": str(project), "names": names, "path": f".:{tmp_path}/bin:{os.environ['PATH']}"}
    *shown, written = await run_extension_modules(COMMANDS, tmp_path, given=given)
    error = f"{names[0]} is not a file in the folders of this window."
    assert [["window.showTextDocument", names[1]], ["window.showErrorMessage", error]] == sorted(shown, reverse=True)
    assert f"$ {tmp_path}/bin/relay-client --ports 5678\nstarted\n" == written


async def test_frames_of_stacks(project: Path, tmp_path: Path) -> None:
    """In a text of stacks, the frames in files of the folder are links to their lines, and no other text is."""
    link = f"{tmp_path}/project-b/other.py"
    text = "\n".join(
        [
            "2 ranks (0-1) in step net.py:9, called in train.py:3",
            f"    {project}/train.py:3 <module>",
            "    /home/job/run/models/net.py:9 step",
            f"    {project}/../secret.txt:1 read",
            *(f"    {link}:7 run", "    /home/job/run/missing.py:1 f", "    <string>:1 f"),
            f"        {project}/train.py:3 = a variable",
        ]
    )
    given = {"text": text, "cwds": ["/elsewhere", "/home/job/run"]}
    given["folders"] = [{"root": str(project), "remoteRoot": "."}]
    [found] = await run_extension_modules(FRAMES, tmp_path, given=given)
    here, on_node = str(project / "train.py"), "/home/job/run/models/net.py"
    assert [[f"{here}:3", here, 3], [f"{on_node}:9", str(project / "models/net.py"), 9]] == found


async def test_connection_files(project: Path, tmp_path: Path) -> None:
    """A file of `relay-server init` comes with its CA; files that relay-client does not read are refused by name."""
    names = "relay/a.client.connection", "relay/tls/ca.pem", "copied/a.client.connection", "copied/ca.pem", "alone.txt"
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    files = [str(tmp_path / name) for name in (*names[::2], "relay/relay.toml", "relay/a.agent.connection")]
    old = [str(project / ".azrelay.json"), str(tmp_path / ".azrelay.json")]
    given = {"files": [*files, *old], "folder": str(project)}
    *found, toml, agent, here, elsewhere = await run_extension_modules(CONNECTIONS, tmp_path, given=given)
    option, ca = "--connection-string-file", "--ca-file"
    assert [
        [option, files[0], ca, str(tmp_path / names[1])],
        [option, files[1], ca, str(tmp_path / names[3])],
        [option, files[2]],
    ] == found
    assert ("relay.toml is not for", "a.agent.connection is not for") == (toml[:21], agent[:29])
    assert [] == here
    assert elsewhere.startswith("relay-client reads .azrelay.json only in the folder")


@pytest.mark.parametrize("is_setting", [False, True])
async def test_program_of_the_selected_interpreter(project: Path, tmp_path: Path, is_setting: bool) -> None:
    """Without one on the PATH, relay-client is that of the interpreter that the Python extension or a setting names."""
    wanted = program(project / ".venv/bin/relay-client", text="started")
    python = "${workspaceFolder}/.venv/bin/python" if is_setting else f"{project}/.venv/bin/python"
    given: dict[str, Any] = {"folder": str(project), "until": "started"}
    given |= {"settings": {"defaultInterpreterPath": python}} if is_setting else {"selected": [python]}
    [written] = await run_extension_modules(START, tmp_path, given=given)
    assert f"$ {wanted} --ports 5678\nstarted\n" == written


async def test_program_that_is_not_installed(project: Path, tmp_path: Path) -> None:
    """One message offers to select an interpreter, whose relay-client then starts, the setting, and instructions."""
    wanted = program(tmp_path / "env/bin/relay-client", text="started")
    given = {"folder": str(project), "until": "started", "selected": ["python", f"{tmp_path}/env/bin/python"]}
    written, message, *commands = await run_extension_modules(START, tmp_path, given=given)
    where = "in the environment of the selected Python interpreter or on the PATH"
    text = f"Cannot find the program 'relay-client' {where}."
    assert [text, "Select Interpreter", "Open Settings", "How to Install"] == message
    assert ["python.setInterpreter"] in commands
    assert f"$ {wanted} --ports 5678\nstarted\n" == written


async def test_without_the_python_extension(project: Path, tmp_path: Path) -> None:
    """The message offers only what exists: the setting and instructions."""
    _written, message, *commands = await run_extension_modules(START, tmp_path, given={"folder": str(project)})
    assert ["Open Settings", "How to Install"] == message[1:]
    assert ["workbench.action.openSettings", "relayDebug.command"] in commands
