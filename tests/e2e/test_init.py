"""Facts about `relay-client init`, run as users run it."""

import asyncio
import json
import re
import signal
from base64 import b64encode
from pathlib import Path

import pytest

from tests.support.machine import secrets
from tests.support.machine.deadline import DEADLINE
from tests.support.machine.ports import free_port
from tests.support.machine.programs import environment, run
from tests.support.machine.screen import client_on, screen
from tests.support.network.fleet import KEY, node_of
from tests.support.network.relay import LocalRelay

pytestmark = pytest.mark.e2e


@pytest.fixture
def env(relay: LocalRelay) -> dict[str, str]:
    """The environment of a client of this relay."""
    access = f"{relay.connection_string('send')};TunnelKey={b64encode(KEY).decode()}"
    return {"RELAY_CONNECTION_STRING": access, "RELAY_CA_FILE": str(relay.ca_file)}


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (folder / ".vscode").iterdir()}


def is_empty(folder: Path) -> bool:
    return not any(folder.iterdir())


def launch_of(folder: Path) -> dict[str, object]:
    return json.loads((folder / ".vscode/launch.json").read_text())


async def test_a_diff_first(tmp_path: Path) -> None:
    """Without --write the changes are shown and nothing is written."""
    finished = await run("relay_client", "init", "vscode", "--ports", "5678-5679", "--folder", str(tmp_path))
    assert 0 == finished.status
    assert '+            "name": "Relay: rank 1",' in finished.stdout.splitlines()
    assert "relay-client: no file was changed; add --write to apply these changes\n" == finished.stderr
    assert is_empty(tmp_path)


async def test_write(tmp_path: Path) -> None:
    """With --write the files are written, and the second run finds nothing to change."""
    command = ["init", "vscode", "--ranks", "0-3", "--hc", "myhc", "--folder", str(tmp_path), "--write"]
    first = await run("relay_client", *command)
    assert 0 == first.status
    written = files_of(tmp_path)
    assert {"launch.json", "tasks.json"} == set(written)
    second = await run("relay_client", *command)
    launch, tasks = tmp_path / ".vscode/launch.json", tmp_path / ".vscode/tasks.json"
    assert (0, "", f"relay-client: {launch} and {tasks} are up to date\n") == (
        second.status,
        second.stdout,
        second.stderr,
    )
    assert written == files_of(tmp_path)


async def test_a_diff_of_the_removal(tmp_path: Path) -> None:
    """--remove without --write shows the changes and writes nothing."""
    command = ["init", "vscode", "--folder", str(tmp_path)]
    await run("relay_client", *command, "--write")
    before = files_of(tmp_path)
    shown = await run("relay_client", *command, "--remove")
    assert (0, before) == (shown.status, files_of(tmp_path))
    assert '-            "name": "Relay: rank 0",' in shown.stdout.splitlines()
    assert "relay-client: no file was changed; add --write to apply these changes\n" == shown.stderr


async def test_remove(tmp_path: Path) -> None:
    """--remove --write removes files that init has created, and our entries from others; then nothing is left to do."""
    command = ["init", "vscode", "--folder", str(tmp_path)]
    folder = tmp_path / ".vscode"
    await run("relay_client", *command, "--write")
    removed = await run("relay_client", *command, "--remove", "--write")
    assert (0, True) == (removed.status, f"relay-client: removed {folder / 'tasks.json'}\n" in removed.stderr)
    assert is_empty(tmp_path)
    folder.mkdir()
    before = (
        '{\n    "version": "0.2.0",\n    "configurations": [ { "name": "mine" } ], // mine\n    "compounds": []\n}\n'
    )
    (folder / "launch.json").write_text(before)
    await run("relay_client", *command, "--write")
    assert 0 == (await run("relay_client", *command, "--remove", "--write")).status
    assert {"launch.json": before.encode()} == files_of(tmp_path)
    again = await run("relay_client", *command, "--remove", "--write")
    assert (0, "") == (again.status, again.stdout)
    assert again.stderr.endswith(" contain nothing to remove\n")


@pytest.mark.parametrize("is_before", [True, False])
async def test_the_session_of_all_ranks(tmp_path: Path, is_before: bool) -> None:
    """With --all-ranks there is a configuration for all ranks, and the task opens the port."""
    job, init = (
        ["--all-ranks", "5600"],
        ["init", "vscode", "--ports", "5678-5679", "--folder", str(tmp_path), "--write"],
    )
    command = [*job, *init] if is_before else [*init, *job]
    assert 0 == (await run("relay_client", "--hc", "myhc", *command)).status
    assert "Relay: all ranks" == launch_of(tmp_path)["configurations"][2]["name"]
    [task] = json.loads((tmp_path / ".vscode/tasks.json").read_text())["tasks"]
    assert ["--ports", "5678-5679", "--reuse", *job] == task["args"][-5:]


async def test_files_of_the_user(tmp_path: Path) -> None:
    """What the user's files have stays, to the byte: comments, line ends, a link, access rights."""
    (tmp_path / ".vscode").mkdir()
    (tmp_path / "shared").mkdir()
    before = b'\xef\xbb\xbf{\r\n\t"configurations": [ // mine\r\n\t\t{ "name": "mine", },\r\n\t]\r\n}\r\n'
    real, link = tmp_path / "shared/launch.json", tmp_path / ".vscode/launch.json"
    real.write_bytes(before)
    real.chmod(0o600)
    link.symlink_to(real)
    await run("relay_client", "init", "vscode", "--folder", str(tmp_path), "--write")
    assert link.is_symlink()
    assert 0o600 == real.stat().st_mode & 0o777
    kept, added = before.split(b",\r\n\t]")[0], real.read_bytes()
    assert added.startswith(kept)
    assert b'\r\n\t\t\t"connect": { "host": "127.0.0.1", "port": 5678 },\r\n' in added
    assert [] == [name for name in files_of(tmp_path) if name not in {"launch.json", "tasks.json"}]


async def test_a_broken_file(tmp_path: Path) -> None:
    """A file that is not valid is an error with its line, and nothing is written."""
    (tmp_path / ".vscode").mkdir()
    tasks = tmp_path / ".vscode/tasks.json"
    tasks.write_text("{\n  'tasks': []\n}")
    finished = await run("relay_client", "init", "vscode", "--folder", str(tmp_path), "--write")
    assert 3 == finished.status
    assert f'relay-client: error: {tasks}, line 2: unexpected "\'". hint: ' in finished.stderr
    assert {"tasks.json": b"{\n  'tasks': []\n}"} == files_of(tmp_path)


async def test_from_targets(relay: LocalRelay, env: dict[str, str], tmp_path: Path) -> None:
    """--from-targets configures the processes that are registered now, and no secret gets into the files."""
    ports = sorted((free_port(), free_port()))
    async with node_of(relay, ports[1], rank=1), node_of(relay, ports[0], rank=0):
        command = ["init", "vscode", "--from-targets", "--folder", str(tmp_path), "--write"]
        finished = await run("relay_client", *command, env=env)
    assert 0 == finished.status, finished.stderr
    assert "RELAY_CONNECTION_STRING is a secret, so it is not written" in finished.stderr
    assert [("Relay: rank 0", ports[0]), ("Relay: rank 1", ports[1])] == [
        (each["name"], each["connect"]["port"]) for each in launch_of(tmp_path)["configurations"]
    ]
    secrets.check(*(text.decode() for text in files_of(tmp_path).values()))


async def test_name_and_connection_string(env: dict[str, str], tmp_path: Path) -> None:
    """A --hc that is not that of the connection string is the same error as that of relay-client."""
    init = ("relay_client", "init", "vscode", "--folder", str(tmp_path))
    refused = await run(*init, "--hc", "other", "--write", env=env)
    assert (3, True) == (refused.status, is_empty(tmp_path))
    assert "connection string is for hybrid connection 'myhc', not for 'other'. hint: use --hc myhc" in refused.stderr
    assert refused.stderr in (await run("relay_client", "--hc", "other", env=env)).stderr
    for others in ({}, {"RELAY_CONNECTION_STRING_FILE": str(tmp_path / "missing")}):
        assert 0 == (await run(*init, "--hc", "other", env=others)).status


async def test_the_task_keeps_its_name(tmp_path: Path) -> None:
    """Without --hc, the task keeps its --hc; with one, it is replaced."""
    init, expected = ("relay_client", "init", "vscode", "--write", "--folder", str(tmp_path)), []
    for hc in (["--hc", "myhc"], [], ["--hc", "other"]):
        assert 0 == (await run(*init, *hc)).status
        expected = hc or expected
        (task,) = json.loads(files_of(tmp_path)["tasks.json"])["tasks"]
        assert expected == task["args"][:2]


async def test_without_targets(env: dict[str, str], tmp_path: Path) -> None:
    """Without an agent, --from-targets is the usual error."""
    finished = await run("relay_client", "init", "vscode", "--from-targets", "--folder", str(tmp_path), env=env)
    assert 9 == finished.status
    assert "no agent is listening on 'myhc'" in finished.stderr


async def test_the_task_runs(relay: LocalRelay, env: dict[str, str], tmp_path: Path) -> None:
    """The task's command, run in the folder by a shell without our variables, begins and ends the wait of F5."""
    access, port = tmp_path / "myhc.connection", free_port()
    access.write_text(env["RELAY_CONNECTION_STRING"])
    access.chmod(0o600)
    shown = await run(
        *("relay_client", "--no-prefetch", "init", "vscode", "--hc", "myhc", "--ports", str(port)),
        *("--folder", str(tmp_path), "--connection-string-file", str(access), "--write"),
        env={"RELAY_CA_FILE": env["RELAY_CA_FILE"]},
    )
    assert 0 == shown.status
    (task,) = json.loads((tmp_path / ".vscode/tasks.json").read_text())["tasks"]
    assert ["--hc", "myhc", "--connection-string-file", "${workspaceFolder}/myhc.connection"] == task["args"][:4]
    assert ["--ports", str(port), "--reuse", "--no-prefetch"] == task["args"][4:]

    def resolved(text: str) -> str:
        return text.replace("${workspaceFolder}", str(tmp_path)).replace("${userHome}", str(Path.home()))

    background = task["problemMatcher"]["background"]
    process = await asyncio.create_subprocess_exec(
        *("sh", "-c", 'exec "$0" "$@"', *map(resolved, [task["command"], *task["args"]])),
        stderr=asyncio.subprocess.PIPE,
        env=environment(**{name: resolved(text) for name, text in task["options"]["env"].items()}),
        cwd=tmp_path,
    )
    try:
        lines = [(await asyncio.wait_for(process.stderr.readline(), DEADLINE)).decode() for _ in range(2)]
        assert re.search(background["beginsPattern"], lines[0])
        assert re.search(background["endsPattern"], lines[1]), lines
        process.send_signal(signal.SIGTERM)
        await asyncio.wait_for(process.wait(), DEADLINE)
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


@pytest.mark.parametrize("command", [["--ports", "5678"], ["--ports", "0"], []])
async def test_a_failed_start(command: list[str]) -> None:
    """A start that fails shows `starting`, the error, and `failed`, each on a line of its own; in a pipe with times."""
    finished = await run("relay_client", *command)
    starting, *notes, error, failed = finished.stderr.splitlines()
    assert ([] if command else ["no --ports: using 5678, the default port of a job"]) == [
        note.partition("relay-client: ")[2] for note in notes
    ]
    assert ["relay-client: starting", "relay-client: failed"] == [line.split(" ", 2)[2] for line in (starting, failed)]
    assert error.startswith("relay-client: error: ")


async def test_colours(tmp_path: Path) -> None:
    """The diff is coloured on a terminal, unless NO_COLOR is set."""
    for variables, has_colours in (({}, True), ({"NO_COLOR": "1"}, False)):
        async with (
            screen() as (shown, descriptor),
            client_on(descriptor, variables, "init", "vscode", "--folder", str(tmp_path)) as client,
        ):
            assert 0 == await asyncio.wait_for(client.wait(), DEADLINE)
            await shown.when(lambda: "no file was changed" in shown.text)
            assert has_colours == ("\x1b[32m+{" in shown.text)


@pytest.mark.parametrize(
    ("editor", "part"),
    [
        ("nvim", '{ name = "Relay: rank 3", port = 5681 },'),
        ("pycharm", "Relay: rank 3            127.0.0.1:5681"),
        ("zed", '"label": "Relay: rank 3",'),
        ("emacs", '\'(relay-rank-3 modes (python-mode python-ts-mode) host "127.0.0.1" port 5681'),
    ],
)
async def test_other_editors(editor: str, part: str, tmp_path: Path) -> None:
    """For other editors stdout has what to paste, and nothing is written."""
    finished = await run("relay_client", "init", editor, "--ranks", "0,3", "--folder", str(tmp_path))
    assert (0, "") == (finished.status, finished.stderr)
    assert part in finished.stdout
    assert is_empty(tmp_path)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["nvim", "--write"], "--write works only with vscode"),
        (["zed", "--remove"], "--remove works only with vscode"),
        (["vscode", "--from-targets", "--ports", "5678"], "--ports and --from-targets cannot be combined"),
        (["vscode", "--ranks", "3-1"], "--ranks: invalid list of ranks: '3-1' is in reverse order"),
        (["vscode", "--folder", "absent"], "--folder: no such folder: "),
        (["vscode", "--connection-string", "x"], "--connection-string is a secret"),
        (["vim"], "argument editor: invalid choice: 'vim'"),
    ],
)
async def test_a_wrong_command_line(arguments: list[str], sentence: str) -> None:
    """A wrong command line is exit code 2 and one sentence."""
    finished = await run("relay_client", "init", *arguments)
    assert 2 == finished.status
    assert sentence in finished.stderr
