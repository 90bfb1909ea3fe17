"""Facts about the files on this machine that the extension opens and starts, run by Node."""

import os
from pathlib import Path
from typing import Any

import pytest

from tests.support.vscode.modules import needs_esbuild, run_extension_modules

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
