"""Facts about files that change while a relay runs: nobody is disconnected."""

import asyncio
import json
import logging
import shutil
import ssl
from dataclasses import replace

import pytest

from relay_core.compat import timeout
from relay_core.errors import ConfigurationError
from relay_server.config import provisioning
from relay_server.config.certificates import prepare
from relay_server.config.file import load
from relay_server.config.model import HybridConnection, Right, Rule, TlsSettings
from relay_server.reloading import Reloader
from relay_server.server import RelayServer
from tests.integration.relay_server.conftest import KEYS
from tests.integration.relay_server.waiting import eventually
from tests.support.machine.deadline import DEADLINE
from tests.support.network.raw_websocket import CLOSE, TEXT, refused

NEW_KEY = "another-key-of-agent-xxxxxxxxxxxx"


def with_agent_key(config, key):
    """Return the configuration with another key of rule `agent` of `hc`, without its secondary key."""
    agent = Rule("agent", frozenset({Right.LISTEN}), key)
    client = Rule("client", frozenset({Right.SEND}), KEYS["client"])
    return replace(config, hybrid_connections=(HybridConnection("HC", rules=(agent, client)),))


def renewal(token):
    return json.dumps({"renewToken": {"token": token}}).encode()


async def test_a_changed_key_applies_to_new_tokens(relay, config):
    """The old key no longer opens or renews a control channel, the new one does, and what is connected continues."""
    staying = await relay.listen()
    sender, listener = await relay.pair(staying)
    renewing = await relay.listen()
    relay.server.reload(with_agent_key(relay.server.config, NEW_KEY))
    answer = await refused(relay.target, "/$hc/hc?sb-hc-action=listen", relay.auth("agent"))
    assert 401 == answer.status
    await relay.listen(headers=relay.auth("agent", key=NEW_KEY))
    await renewing.send(TEXT, renewal(relay.token("agent", key=NEW_KEY)))
    await staying.send(TEXT, renewal(relay.token("agent")))
    close = await staying.read_frame()
    assert (CLOSE, 1008) == (close.opcode, close.code)
    await sender.send(TEXT, b"still here")
    assert (TEXT, b"still here") == await listener.read_message()
    assert 2 == relay.server.metrics().active_listeners


async def test_a_removed_hybrid_connection_is_closed(relay):
    """Its path is unknown to new requests, and its listener and both sides of its relayed connections get 1001."""
    control = await relay.listen("hc/deeper")
    sides = await relay.pair(control, sender={"path": "hc/deeper"})
    kept = await relay.listen("Mixed.Case")
    remaining = tuple(item for item in relay.server.config.hybrid_connections if item.path == "Mixed.Case")
    relay.server.reload(replace(relay.server.config, hybrid_connections=remaining))
    answer = await refused(relay.target, "/$hc/hc/deeper?sb-hc-action=connect", relay.auth("root", "hc/deeper"))
    assert 404 == answer.status
    for websocket in (control, *sides):
        close = await websocket.read_frame()
        assert (CLOSE, 1001, "The hybrid connection was deleted") == (close.opcode, close.code, close.reason)
    await kept.send(TEXT, renewal(relay.token("agent", "Mixed.Case")))
    assert 1 == relay.server.metrics().active_listeners


async def served_certificate(server, ca_file):
    context = ssl.create_default_context(cafile=str(ca_file))
    _, writer = await asyncio.open_connection("localhost", server.port, ssl=context)
    certificate = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    return certificate


async def test_a_changed_certificate_is_presented(start_relay, tmp_path):
    """New connections see the new certificate; an invalid one changes nothing; what is connected continues."""
    first, second = (prepare(TlsSettings(directory=tmp_path / name), ["localhost"]) for name in ("one", "two"))
    certificate, key = tmp_path / "server.pem", tmp_path / "server.key"
    shutil.copy(first.certificate, certificate)
    shutil.copy(first.key, key)
    server = (await start_relay(tls=TlsSettings(certificate=certificate, key=key))).server
    assert await served_certificate(server, first.ca) == ssl.PEM_cert_to_DER_cert(first.certificate.read_text())
    shutil.copy(second.certificate, certificate)
    with pytest.raises(ConfigurationError, match="cannot use the certificate"):
        server.reload(server.config)
    assert await served_certificate(server, first.ca)
    shutil.copy(second.key, key)
    server.reload(server.config)
    assert await served_certificate(server, second.ca) == ssl.PEM_cert_to_DER_cert(second.certificate.read_text())


async def test_files_are_reloaded_when_they_change(tmp_path, caplog):
    """A changed file is applied, an invalid one is reported once and not used; a request reloads without a change."""
    caplog.set_level(logging.INFO)
    made = provisioning.provision(tmp_path / "relay", ["myhc"], namespace="localhost", port=8443)
    file = made.config_file
    text = file.read_text()

    def count(part):
        return sum(part in message for message in caplog.messages)

    async with RelayServer(replace(load(file), port=0)) as server:
        reloader = Reloader(server, file, lambda config: replace(config, port=0))
        running = asyncio.get_running_loop().create_task(reloader.run(interval=0.01))
        file.write_text(text + '\n[[hybrid_connection]]\npath = "added"\n')
        await eventually(lambda: 2 == len(server.config.hybrid_connections))
        file.write_text(text + "\n[[hybrid_connection]]\n")
        await eventually(lambda: count("ignoring the changed configuration"))
        file.write_text(text.replace('namespace = "localhost"', 'namespace = "elsewhere"'))
        await eventually(lambda: count("take effect only after a restart"))
        assert ("localhost", 1) == (server.config.namespace, len(server.config.hybrid_connections))
        assert 1 == count("ignoring the changed configuration")
        before = count("configuration reloaded")
        reloader.request()
        await eventually(lambda: count("configuration reloaded") == before + 1)
        running.cancel()
        await asyncio.wait([running])


async def test_a_certificate_that_is_replaced_in_its_directory_is_presented(tmp_path):
    """New connections see the certificate that another program, such as `relay-server init`, has written there."""
    made = provisioning.provision(tmp_path / "relay", ["myhc"], namespace="localhost", port=8443)
    config = replace(load(made.config_file), port=0)
    async with RelayServer(config) as server:
        reloader = Reloader(server, made.config_file, lambda config: replace(config, port=0))
        running = asyncio.get_running_loop().create_task(reloader.run(interval=0.01))
        before = await served_certificate(server, server.ca_file)
        files = prepare(config.tls, [*config.hosts, "another.example"])
        new = ssl.PEM_cert_to_DER_cert(files.certificate.read_text())
        assert before != new
        async with timeout(DEADLINE):
            while new != await served_certificate(server, server.ca_file):
                await asyncio.sleep(0.01)
        running.cancel()
        await asyncio.wait([running])


async def test_missing_file_is_reported(tmp_path, caplog):
    """A configuration that disappears leaves the relay as it was."""
    made = provisioning.provision(tmp_path / "relay", ["myhc"], namespace="localhost", port=8443)
    server = RelayServer(load(made.config_file))
    before = server.config
    made.config_file.unlink()
    assert not Reloader(server, made.config_file, lambda config: config).reload()
    assert server.config is before
    assert "ignoring the changed configuration" in caplog.text
