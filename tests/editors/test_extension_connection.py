"""Facts about the part of the VS Code extension that speaks to the control socket, run by Node against the real one."""

import asyncio
import json
from pathlib import Path

import pytest

from relay_client.control.directory import ControlDirectory
from relay_client.control.log_history import LogHistory
from relay_client.control.server import ControlServer, client_id
from relay_client.control.service import ControlService
from relay_client.ports.forwarder import Forwarder
from relay_client.user_directory import user_directory
from tests.support.editors.vscode.modules import needs_esbuild, run_extension_modules
from tests.support.machine.deadline import DEADLINE
from tests.support.network.fleet import tunnels
from tests.support.network.relay import LocalRelay

PROGRAM = """
import { addresses, userDirectories } from './src/directory';
import { Connection } from './src/connection';

const [directory, token] = process.argv.slice(2);
const print = (value: unknown) => console.log(JSON.stringify(value));
const ask = async (connection: Connection, name: string, fields = {}) => {
  try {
    return await connection.request(name, fields);
  } catch (error) {
    return String((error as Error).message);
  }
};

(async () => {
  for (const [id, address] of await addresses(directory ? [directory] : userDirectories())) {
    try {
      const connection = await Connection.open(token && 'token' in address ? { ...address, token } : address);
      connection.onEvent = (event) => print(event.text);
      print([id, connection.client.hc, 'path' in address]);
      print(await ask(connection, 'attach', { rank: 7 }));
      print(await ask(connection, 'logs', { lines: 0, follow: true }));
      connection.onClosed = () => print('closed');
      await connection.request('stop');
    } catch (error) {
      print(`refused: ${(error as Error).message}`);
    }
  }
  print('done');
})();
"""

pytestmark = [pytest.mark.editors, needs_esbuild]


async def run_extension(directory: Path | str, to: Path, *arguments: str) -> list[object]:
    """Run the program for a directory, or for those of the user (""), and return the values that it prints."""
    return await run_extension_modules(PROGRAM, to, str(directory), *arguments)


@pytest.mark.parametrize("has_unix_sockets", [True, False])
async def test_both_kinds_of_endpoints(
    relay: LocalRelay, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_unix_sockets: bool
) -> None:
    """The extension finds a relay-client, gets results and errors, and is refused with a wrong token."""
    if not has_unix_sockets:
        monkeypatch.setattr("relay_client.control.directory._has_unix_sockets", lambda _path: False)
    directory = tmp_path / "own"
    async with tunnels(relay) as client_tunnels, Forwarder(client_tunnels, []) as forwarder:
        with LogHistory() as logs:
            service = ControlService(client_id("forward", client_tunnels.endpoint), client_tunnels, forwarder, logs)
            async with ControlServer(service, ControlDirectory(directory)):
                if not has_unix_sockets:
                    found = await run_extension(directory, tmp_path, "0" * 64)
                    assert ["refused: the connection was closed", "done"] == found
                running = asyncio.ensure_future(run_extension(directory, tmp_path))
                await asyncio.wait_for(service.stopping.wait(), DEADLINE)
            first, error, log, *rest = await running
    assert [service.client.id, "myhc", has_unix_sockets] == first
    assert "rank 7 is not registered on 'myhc'. wait until a rank is registered" == error
    assert {"lines": []} == log
    assert {"closed", "done"} <= {*map(str, rest)}


@pytest.mark.parametrize("place", [".local/state", "state"])
async def test_another_user_hides_no_client(
    relay: LocalRelay, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """The extension finds a relay-client that was started while another user had a directory with the usual name."""
    monkeypatch.delenv("RELAY_CLIENT_DIR", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", "" if place.startswith(".") else str(tmp_path / place))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    usual = user_directory()
    usual.mkdir(mode=0o755)
    assert tmp_path / place / "relay-debug" == user_directory()
    async with tunnels(relay) as client_tunnels, Forwarder(client_tunnels, []) as forwarder:
        with LogHistory() as logs:
            service = ControlService(client_id("forward", client_tunnels.endpoint), client_tunnels, forwarder, logs)
            async with ControlServer(service, ControlDirectory()):
                usual.rmdir()
                running = asyncio.ensure_future(run_extension("", tmp_path))
                stopping = asyncio.ensure_future(service.stopping.wait())
                await asyncio.wait({running, stopping}, timeout=DEADLINE, return_when=asyncio.FIRST_COMPLETED)
                stopping.cancel()
            first, *_ = await running
    assert [service.client.id, "myhc"] == first[:2]


async def test_a_directory_of_others_is_not_read(tmp_path: Path) -> None:
    """Files that another user may have put there are not connected to."""
    (tmp_path / "open").mkdir(mode=0o755)
    (tmp_path / "open" / "control-1a2b3c4d.json").write_text('{"port": 1, "token": "t"}')
    assert ["done"] == await run_extension(tmp_path / "open", tmp_path)


async def test_an_impostor_is_refused(tmp_path: Path) -> None:
    """A program that listens on the port of a relay-client that was killed cannot prove that it knows the token."""

    async def impostor(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b'{"challenge": "c", "version": 1}\n')
        assert b"secret" not in await reader.readline()
        writer.write(json.dumps({"hello": {"hc": "myhc"}, "proof": "0" * 64}).encode() + b"\n")
        writer.close()

    directory = tmp_path / "own"
    directory.mkdir(mode=0o700)
    async with await asyncio.start_server(impostor, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        (directory / "control-1a2b3c4d.json").write_text(json.dumps({"port": port, "token": "secret"}))
        found = await run_extension(directory, tmp_path)
    assert ["refused: another program is listening on the port of this relay-client", "done"] == found
