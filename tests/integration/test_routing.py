"""Facts about many agents on one hybrid connection: every port leads to its own process, whatever the relay does."""

import asyncio
import contextlib
import logging
import random
import re
import time
from base64 import b64encode
from pathlib import Path

import pytest

from relay_client.agents.roster import Destination
from relay_client.ports.editor_link import JobViews
from relay_client.ports.forwarder import Forwarder
from relay_client.ports.local_port import all_ranks_port, parse_forwards
from relay_client.ports.rank_port import wait_for_claims
from relay_core.agent_api.announcement import Ending, State
from relay_core.agent_api.metadata import ClientStatus, PortConflict
from tests.support.machine.deadline import DEADLINE, until
from tests.support.machine.ports import free_port
from tests.support.machine.programs import program
from tests.support.network.fleet import DAP_START, KEY, Node, agent, node_of, process, tunnels, who_serves
from tests.support.network.relay import LocalRelay, local_relay

AGENTS = 25
"""As many as Azure allows."""


async def ask_all(ports: dict[int, str], connects: int, seed: int) -> None:
    """Connect to random ports, twenty at a time, and check who answers."""
    chance, at_once = random.Random(seed), asyncio.Semaphore(20)

    async def ask(port: int) -> None:
        async with at_once:
            assert ports[port] == await who_serves(port)

    await asyncio.gather(*(ask(chance.choice(list(ports))) for _ in range(connects)))


@pytest.mark.parametrize("selects", [True, False])
async def test_twenty_five_agents(tls_directory: Path, selects: bool) -> None:
    """All agents are found, and 250 random connects (500 in all) reach the process of their port, every time.

    Where the relay honours the selection headers, each agent accepts one connection, and refuses only those of probes
    that were under way at the same time.
    """
    ports = {free_port(): f"node-{n}" for n in range(AGENTS)}
    async with (
        local_relay(tls_directory, honour_listener_selection=selects) as relay,
        contextlib.AsyncExitStack() as stack,
    ):
        await asyncio.gather(
            *(stack.enter_async_context(node_of(relay, port, name=name)) for port, name in ports.items())
        )
        before = relay.server.metrics()
        async with tunnels(relay) as client, Forwarder(client, list(ports)):
            expected = {port: f"{name}:{port}" for port, name in ports.items()}
            await ask_all(expected, 250, seed=4)
            await until(lambda: len(client.roster) == AGENTS)
            after = relay.server.metrics()
            assert {owner.agent.id for owner in client.roster.targets(time.time())} == {
                info.id for info in client.roster
            }
        if selects:
            assert AGENTS == after.sender_connections - before.sender_connections
            assert after.rejected - before.rejected < 3 * AGENTS


@pytest.mark.parametrize("selects", [True, False])
async def test_a_relay_that_restarts_gives_each_tunnel_its_own_agent_back(tls_directory: Path, selects: bool) -> None:
    """After a restart of the relay every connection continues with the process it was connected to."""
    ports = {free_port(): f"node-{n}" for n in range(6)}
    async with (
        local_relay(tls_directory, honour_listener_selection=selects) as relay,
        contextlib.AsyncExitStack() as stack,
    ):
        for port, name in ports.items():
            await stack.enter_async_context(node_of(relay, port, name=name))
        client = await stack.enter_async_context(tunnels(relay))
        await stack.enter_async_context(Forwarder(client, list(ports)))
        editors = {port: await asyncio.open_connection("127.0.0.1", port) for port in ports}
        for _ in range(2):
            for port, (reader, writer) in editors.items():
                writer.write(b"?")
                assert f"{ports[port]}:{port}\n".encode() == await asyncio.wait_for(reader.readline(), DEADLINE)
            if _ == 0:
                await relay.server.kill()
                await relay.server.start()
        for _, writer in editors.values():
            writer.close()
            await writer.wait_closed()
        assert len(ports) == len(client.roster)


@pytest.mark.parametrize("selects", [True, False])
async def test_agents_leave_and_others_take_their_ports(tls_directory: Path, selects: bool) -> None:
    """Ports follow jobs that end and start again; an editor that comes in between is held until then."""
    first, second = free_port(), free_port()
    async with (
        local_relay(tls_directory, honour_listener_selection=selects) as relay,
        tunnels(relay) as client,
        Forwarder(client, [first, second]),
    ):
        async with node_of(relay, first, name="a"), node_of(relay, second, name="b"):
            assert (f"a:{first}", f"b:{second}") == (await who_serves(first), await who_serves(second))
        await until(lambda: not len(client.roster))
        early = asyncio.ensure_future(who_serves(second))
        async with node_of(relay, second, name="c"), node_of(relay, first, name="d"):
            assert f"c:{second}" == await early
            assert f"d:{first}" == await who_serves(first)


async def test_a_killed_agent_loses_its_port_to_its_successor(relay: LocalRelay) -> None:
    """A port of an agent that was killed leads to the job that was started instead; nobody waits for the dead one."""
    port = free_port()
    access = f"{relay.connection_string('listen')};TunnelKey={b64encode(KEY).decode()}"
    env = {"RELAY_CONNECTION_STRING": access, "RELAY_CA_FILE": str(relay.ca_file)}
    async with (
        process(port, "old") as old,
        process(port, "new") as new,
        tunnels(relay) as client,
        Forwarder(client, [port]),
    ):
        local = (await old.locate())[1]
        async with program("relay_agent", "serve", "--port", f"{port}:{local}", env=env) as serving:
            await serving.line("listening on")
            assert "old" == await who_serves(port)
            serving.process.kill()
            await serving.process.wait()
        async with agent(relay, Node(new)):
            assert "new" == await who_serves(port)


async def test_a_connection_ends_after_its_process(relay: LocalRelay, caplog: pytest.LogCaptureFixture) -> None:
    """A debug adapter that outlives its process without ending the session does not keep the editor waiting."""
    port = free_port()
    async with (
        process(port, "served") as served,
        agent(relay, Node(served)),
        tunnels(relay) as client,
        Forwarder(client, [port]),
    ):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"who?\n")
        assert b"served\n" == await reader.readline()
        served.ended.set()
        with contextlib.suppress(ConnectionError):
            assert b"" == await asyncio.wait_for(reader.read(), DEADLINE)
        writer.close()
        await until(lambda: "lost: the process has exited" in caplog.text)


async def test_two_claims_to_one_port(relay: LocalRelay, caplog: pytest.LogCaptureFixture) -> None:
    """The earlier claim keeps the port, one line reports the conflict to the user, and both agents learn of it."""
    port = free_port()
    now = time.time()
    async with (
        node_of(relay, port, name="late", fields={"host": "b"}, pid=40, since=now - 10) as late,
        node_of(relay, port, name="early", fields={"host": "a"}, pid=12, since=now - 20) as early,
        tunnels(relay) as client,
        Forwarder(client, [port]),
    ):
        caplog.set_level(logging.INFO, "relay_client")
        await client.discover_all()
        assert f"early:{port}" == await who_serves(port)
        await until(lambda: late.statuses and early.statuses)
        late.change(port, state="running")
        await until(lambda: any(target.state is State.RUNNING for info in client.roster for target in info.targets))
        assert f"early:{port}" == await who_serves(port)
    expected = ClientStatus((PortConflict(port, "a pid 12", "b pid 40"),))
    assert [expected] == early.statuses == late.statuses
    assert 1 == caplog.text.count(
        f"port {port} is claimed twice: a pid 12 claimed it first and keeps it, so b pid 40 cannot be reached"
    )


async def test_a_port_is_debugged_once_all_claims_are_known(relay: LocalRelay) -> None:
    """A command that is about a port finds all agents first: one that is not known yet may have claimed it earlier."""
    port, now = free_port(), time.time()
    async with node_of(relay, port, fields={"host": "late"}, since=now - 10), tunnels(relay) as client:
        await client.discover_all()
        async with node_of(relay, port, fields={"host": "early"}, since=now - 20):
            [claim] = await wait_for_claims(client, 0, port, print, within=DEADLINE)
            assert "early" == claim.agent.host


async def test_a_conflict_ends_with_the_first_job(relay: LocalRelay) -> None:
    """When the owner of a port goes, the other claim counts."""
    port = free_port()
    async with (
        node_of(relay, port, name="b", since=time.time() - 10),
        tunnels(relay) as client,
        Forwarder(client, [port]),
    ):
        async with node_of(relay, port, name="a", since=time.time() - 20):
            await client.discover_all()
            assert f"a:{port}" == await who_serves(port)
        await until(lambda: len(client.roster) == 1)
        assert f"b:{port}" == await who_serves(port)


async def test_a_held_target_is_reported_with_its_holder(relay: LocalRelay, caplog: pytest.LogCaptureFixture) -> None:
    """A second client's connection is closed, and its log names the holder; then the port becomes free again."""
    port, other = free_port(), free_port()
    async with (
        node_of(relay, port, name="rank", dap_only=True),
        tunnels(relay) as first,
        tunnels(relay) as second,
        Forwarder(first, [port]),
        Forwarder(second, parse_forwards([f"{port}:{other}"])),
    ):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(DAP_START)
        assert f"rank:{port}\n".encode() == await reader.readline()
        with caplog.at_level(logging.ERROR, "relay_client"):
            assert "" == await who_serves(other, DAP_START)
        assert "is held by " in caplog.text
        assert re.search(r" \(since \d\d:\d\d\)", caplog.text)

        def held() -> bool:
            return any(target.attachment for info in second.roster for target in info.targets)

        await until(held)
        writer.close()
        await writer.wait_closed()
        await until(lambda: not held())
        assert f"rank:{port}" == await who_serves(other, DAP_START)


async def test_an_editor_waits_for_a_process_that_is_restarted(relay: LocalRelay) -> None:
    """What an editor sends while its process is away reaches the next process with that port, from the start."""
    port = free_port()
    async with (
        node_of(relay, port, name="old", pid=1) as node,
        process(port, "new", pid=2) as new,
        tunnels(relay) as client,
        Forwarder(client, [port]),
    ):
        assert f"old:{port}" == await who_serves(port)
        node.remove(port)
        await until(lambda: client.agent_for(Destination(port)) is None)
        early = asyncio.ensure_future(who_serves(port))
        await asyncio.sleep(0)
        node.put(new)
        assert "new" == await early


async def test_a_port_that_has_just_gone_is_waited_for(relay: LocalRelay, caplog: pytest.LogCaptureFixture) -> None:
    """An agent that refuses a port which it had announced does not cost the editor its connection."""
    port = free_port()
    caplog.set_level(logging.WARNING, "relay_client")
    async with node_of(relay, port, name="rank") as node, tunnels(relay) as client, Forwarder(client, [port]):
        await client.discover()
        gone = node.processes.pop(port)  # the client has not been notified
        early = asyncio.ensure_future(who_serves(port))
        await until(lambda: f"waiting: this agent does not serve port {port}" in caplog.text)
        node.put(gone)
        assert f"rank:{port}" == await early


async def test_an_agent_that_is_lost_after_its_last_target_has_ended(
    relay: LocalRelay, caplog: pytest.LogCaptureFixture
) -> None:
    """A container may be stopped with its job: the session with its agent then ends at once, and is not resumed."""
    port = free_port()
    caplog.set_level(logging.WARNING, "relay_client")
    async with node_of(relay, port, name="rank") as node, tunnels(relay) as client:
        await client.discover()
        node.fields["endings"] = (Ending(port, 17, is_final=False),)
        node.remove(port)
        await until(lambda: all(found.endings and not found.targets for found in client.roster))
        await relay.server.stop()
        await until(lambda: not len(client.roster))
        assert "lost: the job has ended" in caplog.text
        await relay.server.start()


async def test_what_happens_is_logged_line_by_line(relay: LocalRelay, caplog: pytest.LogCaptureFixture) -> None:
    """Targets that come, are held, crash and go are one line each; a crash rings."""
    port, alarms = free_port(), []
    caplog.set_level(logging.INFO, "relay_client")
    async with (
        node_of(relay, port, name="rank", fields={"host": "node-1"}, rank=3, dap_only=True, state="running") as node,
        process(port + 1, "", rank=4, state="waiting", pid=44) as late,
        tunnels(relay, alarm=lambda: alarms.append(1)) as client,
        Forwarder(client, [port]),
    ):
        await client.discover()
        assert (
            f"found an agent: node-1/{next(iter(client.roster)).id[:8]} serves port {port} (rank 3 running)"
            in caplog.text
        )
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(DAP_START)
        await reader.readline()
        await until(lambda: "rank 3 on node-1 is held by " in caplog.text)
        writer.close()
        await writer.wait_closed()
        await until(lambda: "rank 3 on node-1 is free: " in caplog.text)
        node.change(port, state="crashed", detail="ValueError: no", until=time.time() + 1805)
        line = "rank 3 on node-1 crashed: ValueError: no; to attach, run 'relay-client attach 3' within 30 min"
        await until(lambda: line in caplog.text)
        node.put(late)
        await until(lambda: f"node-1 also serves port {port + 1} (rank 4 waiting for a debugger)" in caplog.text)
        node.remove(port + 1)
        await until(lambda: "rank 4 on node-1 became unavailable (pid 44)" in caplog.text)
    assert [1] == alarms


async def test_the_last_of_two_jobs(relay: LocalRelay, caplog: pytest.LogCaptureFixture) -> None:
    """Where two jobs had a rank 3, the line about the end of the second one also contains its port."""
    port = free_port()
    caplog.set_level(logging.INFO, "relay_client")
    async with (
        node_of(relay, port, fields={"host": "vm"}, rank=3, pid=43) as node,
        process(port + 1, "", rank=3, pid=44) as other,
        tunnels(relay) as client,
    ):
        node.put(other)
        await client.discover()
        await until(lambda: len(client.reachable_targets()) == 2)
        for number, pid in ((port, 43), (port + 1, 44)):
            node.remove(number)
            line = f"rank 3 on vm (port {number}) became unavailable (pid {pid})"
            await until(lambda line=line: line in caplog.text)


async def test_an_editor_sees_which_of_two_jobs_it_debugs(relay: LocalRelay) -> None:
    """Where two jobs have a rank 3, the name that its messages contain has the port."""
    port = free_port()
    async with (
        node_of(relay, port, fields={"host": "vm"}, rank=3) as node,
        process(port + 1, "", rank=3) as other,
        tunnels(relay) as client,
    ):
        await client.discover()
        views = JobViews(client, Destination(port))
        assert "rank 3 on vm" == views.current().name
        node.put(other)
        await until(lambda: f"rank 3 on vm (port {port})" == views.current().name)


async def test_a_wait_is_logged_once(
    relay: LocalRelay, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While an editor waits for a rank, the log has one line, although the times in its text change."""
    port, held = free_port(), free_port()
    attempts: list[str] = []

    def describe(*_: object) -> str:
        attempts.append(f"rank 1 held by bob@laptop for {len(attempts)} s")
        return attempts[-1]

    monkeypatch.setattr("relay_client.agents.tunnels.describe_agent", describe)
    async with node_of(relay, held, rank=1) as node, tunnels(relay) as client, Forwarder(client, [port]):
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(DAP_START)
        await until(lambda: f"connection 1: waiting: no agent on 'myhc' serves port {port}; rank 1 held" in caplog.text)
        for number in range(3):
            before = len(attempts)
            node.change(held, detail=str(number))
            await until(lambda before=before: len(attempts) > before)
        writer.close()
        await writer.wait_closed()
    assert 1 == caplog.text.count("waiting: ")


async def test_what_changes_while_a_client_is_away_reaches_it(relay: LocalRelay) -> None:
    """A target that comes while the relay is down is known to the client after the tunnel's resume."""
    port = free_port()
    async with (
        node_of(relay, port, name="old") as node,
        process(port + 1, "new") as late,
        tunnels(relay) as client,
    ):
        await client.discover()
        await relay.server.kill()
        node.put(late)
        await relay.server.start()
        await until(lambda: client.agent_for(Destination(port + 1)) is not None)


async def test_an_editor_of_all_ranks_keeps_the_ports_in_use(relay: LocalRelay) -> None:
    """An editor on the port of all ranks counts for --idle-exit, although no rank exists."""
    port = free_port()
    async with tunnels(relay) as client, Forwarder(client, [all_ranks_port(port)]) as forwarder:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        await until(lambda: forwarder.job_sessions)
        waiting = asyncio.ensure_future(forwarder.connections.until_idle(0.05))
        await asyncio.wait([waiting], timeout=0.12)
        assert not waiting.done()
        writer.close()
        await waiting
