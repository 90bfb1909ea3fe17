"""Facts about the control socket of a running relay-client, with real sockets, agents and debug connections."""

import asyncio
import contextlib
import json
import logging
import os
import socket
from base64 import b64encode
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from relay_client.cli import make_parser
from relay_client.cli.inspection import asking
from relay_client.control import server
from relay_client.control.client import ControlClient, running_clients
from relay_client.control.directory import Address, ControlDirectory
from relay_client.control.log_history import LogHistory
from relay_client.control.messages import (
    Attach,
    AttachAll,
    Attached,
    AttachedAll,
    GetStatus,
    Logs,
    Release,
    Released,
    Stop,
    Subscribe,
)
from relay_client.control.server import ControlServer, client_id
from relay_client.control.service import ControlService
from relay_client.control.state import Status
from relay_client.ports.forwarder import Forwarder
from relay_client.ranks.changes import Event
from relay_client.verbs.hang import Hang
from relay_client.verbs.push import Push
from relay_client.verbs.stacks import Stacks
from relay_client.verbs.targets import Targets
from relay_client.verbs.verb import Answer
from relay_core.agent_api import push
from relay_core.agent_api.push import Phase
from relay_core.agent_api.questions import NodeReplies, Question, Reply
from relay_core.agent_api.requests import Ready, Wake
from relay_core.errors import ConnectionLost, Interrupted, NoListener, RelayDebugError, UsageError
from relay_core.records import encode
from tests.support.jobs.running import running_job
from tests.support.machine.deadline import DEADLINE
from tests.support.machine.other_user import connecting_stranger, needs_owners, needs_second_user
from tests.support.machine.ports import free_port
from tests.support.network.fleet import DAP_START, KEY, Node, agent, node_of, process, tunnels, who_serves
from tests.support.network.relay import HC, LocalRelay


class Running:
    """A relay-client in this process, and a connection to its control socket."""

    def __init__(self, service: ControlService, forwarder: Forwarder, directory: ControlDirectory) -> None:
        self.service = service
        self.forwarder = forwarder
        self.directory = directory
        self.client: ControlClient

    async def until(self, *kinds: str) -> Event:
        """Return the next event of one of these kinds."""

        async def find() -> Event:
            async for event in self.client.events():
                if event.event in kinds:
                    return event
            raise AssertionError("the relay-client has exited")

        return await asyncio.wait_for(find(), DEADLINE)


@contextlib.asynccontextmanager
async def running(relay: LocalRelay, root: Path, *ports: int) -> AsyncIterator[Running]:
    """Run a relay-client with these ports and without any of its command line."""
    directory = ControlDirectory(root)
    async with tunnels(relay) as client_tunnels, Forwarder(client_tunnels, ports) as forwarder:
        client_tunnels.keep_searching()
        with LogHistory() as logs:
            service = ControlService(client_id("forward", client_tunnels.endpoint), client_tunnels, forwarder, logs)
            async with ControlServer(service, directory):
                found = Running(service, forwarder, directory)
                async with running_clients(directory) as (found.client,):
                    yield found


async def request(client: ControlClient, wanted: object) -> object:
    return await asyncio.wait_for(client.request(wanted), DEADLINE)  # type: ignore[arg-type]


async def test_the_port_of_all_ranks(relay: LocalRelay, tmp_path: Path) -> None:
    """It is opened by the first request, and the same one for the next; a free one, whoever has the others."""
    async with running(relay, tmp_path) as found:
        first = await request(found.client, AttachAll())
        assert isinstance(first, AttachedAll)
        assert ("127.0.0.1", True) == (first.host, first.is_new)
        assert AttachedAll(first.local_port, first.host, is_new=False) == await request(found.client, AttachAll())
        (port,) = (await request(found.client, GetStatus())).ports
        assert (first.local_port, True, True) == (port.port, port.is_all_ranks, port.is_on_demand)


async def test_a_verdict_without_agents(relay: LocalRelay, tmp_path: Path) -> None:
    """A verdict needs an agent; without one the request fails."""
    async with running(relay, tmp_path) as found:
        with pytest.raises(RelayDebugError, match="no agent is listening on 'myhc'"):
            await request(found.client, Hang())


@contextlib.asynccontextmanager
async def debugging(port: int) -> AsyncIterator[asyncio.StreamReader]:
    """Connect to a local port as a debugger does; the block begins when the rank has answered."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(DAP_START)
        assert await asyncio.wait_for(reader.readline(), DEADLINE)
        yield reader
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


async def test_the_state(relay: LocalRelay, tmp_path: Path) -> None:
    """It has the client, its ports, the nodes with their ranks, and who is connected."""
    port, fields = free_port(), {"host": "node-1", "node_rank": 1, "cwd": "/job"}
    async with (
        node_of(relay, port, fields=fields, rank=3, pid=44, script="train.py", state="running", dap_only=True),
        running(relay, tmp_path / "own", port) as here,
    ):
        await request(here.client, Subscribe())
        async with debugging(port):
            await here.until("held")
            status = await request(here.client, GetStatus())
            assert (HC, "forward", os.getpid()) == (status.client.hc, status.client.command, status.client.pid)
            assert [port] == [opened.port for opened in status.ports]
            (node,) = status.nodes
            assert ("node-1", 1, "/job", "connected") == (node.host, node.node_rank, node.cwd, node.link)
            assert 0 < node.round_trip < DEADLINE
            (rank,) = node.targets
            assert (3, port, 44, "train.py", "running") == (rank.rank, rank.port, rank.pid, rank.script, rank.state)
            assert ((port,), True, None) == (rank.local_ports, rank.attached_here, rank.stop)
            assert "@" in rank.holder
            (connection,) = status.connections
            assert (port, "connected") == (connection.port, connection.state)
            assert (len(DAP_START), True) == (connection.sent, connection.received > 0)
        last = [await here.until("detached", "free"), await here.until("detached", "free")]  # in any order
        assert ["detached", "free"] == sorted(event.event for event in last)
        assert f"rank 3 on node-1 is free: {rank.holder} disconnected" in [event.text for event in last]


async def test_events_of_agents_and_ranks(relay: LocalRelay, tmp_path: Path) -> None:
    """A subscriber receives what happens after the state that it was sent first, and only the kinds it wants."""
    port = free_port()
    async with running(relay, tmp_path / "own") as here:
        status = await request(here.client, Subscribe(("connected", "state", "ended")))
        assert ((), ()) == (status.nodes, status.ports)
        async with node_of(relay, port, fields={"host": "node-1"}, rank=3, state="running") as node:
            assert "node-1: connected" == (await here.until("connected")).text
            node.change(port, state="crashed", detail="ValueError: no")
            while (event := await here.until("state")).state != "crashed":
                pass
            assert ("rank 3 on node-1 crashed: ValueError: no", 3, port) == (event.text, event.rank, event.port)
            assert here.service.client.id == event.client
            node.remove(port)
            assert "rank 3 on node-1 became unavailable" == (await here.until("ended")).text
        assert "node-1: the session has ended" in (await here.until("ended")).text


@pytest.mark.parametrize(
    ("end", "how"),
    [
        ("os.kill(os.getpid(), 9)", "was killed by SIGKILL (the usual cause is lack of memory)"),
        ("sys.exit(3)", "ended with status 3"),
        ("{}['x']", "ended with status 1: KeyError: 'x'"),
    ],
)
async def test_how_a_rank_has_ended(
    relay: LocalRelay, tmp_path: Path, caplog: pytest.LogCaptureFixture, end: str, how: str
) -> None:
    """The event and the client's log say how a process has ended, which its agent has read from the kernel."""
    script, go = tmp_path / "train.py", tmp_path / "go"
    script.write_text(f"import os, sys, time\nwhile not os.path.exists({str(go)!r}): time.sleep(0.01)\n{end}\n")
    caplog.set_level(logging.INFO)
    async with running(relay, tmp_path / "own") as here:
        await request(here.client, Subscribe(("state", "ended")))
        options = ("--debug-ranks", "none", "--port", str(free_port()))
        async with running_job(relay, script, *options, RELAY_TUNNEL_KEY=b64encode(KEY).decode()):
            pid = (await here.until("state")).pid
            go.touch()
            event = await here.until("ended")
        assert (f"rank 0 on {event.host} (pid {pid}) {how}", how) == (event.text, event.reason)
        assert event.text in caplog.messages


async def test_attach_opens_a_port_and_release_closes_it(relay: LocalRelay, tmp_path: Path) -> None:
    """The rank's debugger is started; a second request finds the port open; a released rank is free."""
    port, own = free_port(), free_port()
    async with (
        node_of(relay, port, name="rank", fields={"host": "node-1"}, rank=3, dap_only=True) as node,
        running(relay, tmp_path / "own") as here,
    ):
        attached = await request(here.client, Attach(3, wait=True))
        assert Attached(port, port, "127.0.0.1", is_new=True, rank=3, node="node-1") == attached
        assert 1 == node.processes[port].woken
        assert not (await request(here.client, Attach(3))).is_new
        moved = await request(here.client, Attach(port=port, local_port=own))
        assert (own, True) == (moved.local_port, moved.is_new)
        await request(here.client, Subscribe(("held", "free")))
        async with debugging(port) as session:
            released = await request(here.client, Release(3))
            with contextlib.suppress(ConnectionError):
                await asyncio.wait_for(session.read(), DEADLINE)
        assert Released(1, (port, own)) == released
        assert [] == here.forwarder.opened
        await here.until("free")
        with pytest.raises(RelayDebugError, match="no debugger is attached to rank 3"):
            await request(here.client, Release(3))


async def test_release_of_a_rank_that_waits(relay: LocalRelay, tmp_path: Path) -> None:
    """Nobody can be disconnected; the hint is how to let the rank continue."""
    port = free_port()
    async with (
        node_of(relay, port, rank=3, state="waiting", dap_only=True),
        running(relay, tmp_path / "own", port) as here,
    ):
        await request(here.client, Attach(3, wait=True))
        with pytest.raises(RelayDebugError) as caught:
            await request(here.client, Release(3))
        assert "no debugger is attached to rank 3" == caught.value.sentence
        command = f"relay-client --hc {HC} pdb 3"
        assert f"it is waiting for one; to let it continue, run '{command}', and then enter q" == caught.value.hint


async def test_a_port_that_another_request_has_closed(relay: LocalRelay, tmp_path: Path) -> None:
    """Of two requests that close a port at once, the later one finds nothing to close."""
    port = free_port()
    async with running(relay, tmp_path / "own", port) as here:
        await asyncio.gather(*(here.forwarder.close_port(port) for _ in range(2)))
        assert 0 == await here.forwarder.disconnect(port, "released")
        assert [] == here.forwarder.opened


async def test_release_keeps_a_port_of_the_command_line(relay: LocalRelay, tmp_path: Path) -> None:
    """Only connections are closed; the next debugger gets through."""
    port = free_port()
    async with (
        node_of(relay, port, name="rank", rank=3, dap_only=True),
        running(relay, tmp_path / "own", port) as here,
    ):
        async with debugging(port):
            assert Released(1) == await request(here.client, Release(port=port))
        assert f"rank:{port}" == await who_serves(port, DAP_START)


async def test_two_ranks_with_one_port(relay: LocalRelay, tmp_path: Path) -> None:
    """The state shows for the later rank that the port leads to the earlier one, and no local port."""
    port = free_port()
    async with (
        node_of(relay, port, fields={"host": "first"}, rank=0, pid=1, state="running", since=50.0),
        node_of(relay, port, fields={"host": "second"}, rank=0, pid=2, state="running", since=60.0),
        running(relay, tmp_path / "own", port) as here,
    ):
        await request(here.client, Subscribe())
        while len((status := await request(here.client, GetStatus())).nodes) < 2:
            await here.until("connected")
        found = {(target.text, target.local_ports) for node in status.nodes for target in node.targets}
        assert {("running", (port,)), (f"unreachable: port {port} leads to first pid 1", ())} == found


async def test_a_port_in_use_is_replaced(relay: LocalRelay, tmp_path: Path) -> None:
    """If the logical port is taken on this machine, a free one leads to the rank; a chosen port must be free."""
    port = free_port()
    async with node_of(relay, port, name="rank", rank=3), running(relay, tmp_path / "own") as here:
        with socket.create_server(("127.0.0.1", port)):
            attached = await request(here.client, Attach(3, wait=True))
            assert port != attached.local_port
            assert f"rank:{port}" == await who_serves(attached.local_port)
            with pytest.raises(RelayDebugError, match=f"port {port} on this machine is in use"):
                await request(here.client, Attach(3, local_port=port))


async def test_what_cannot_be_attached_to(relay: LocalRelay, tmp_path: Path) -> None:
    """A rank that is not there, a request without one, and a process that cannot be debugged are errors."""
    port = free_port()

    async def cannot(_request: object) -> object:
        raise RelayDebugError("debugpy is not installed in the job", hint="pip install debugpy")

    async with running(relay, tmp_path / "own") as here:
        with pytest.raises(NoListener, match="rank 7 is not registered on 'myhc'"):
            await request(here.client, Attach(7))
        with pytest.raises(UsageError, match="specify a rank or a port"):
            await request(here.client, Attach())
        await request(here.client, Subscribe(("state",)))
        async with node_of(relay, port, rank=3) as node:
            await here.until("state")
            with pytest.raises(NoListener, match="rank 7 is not registered") as caught:
                await request(here.client, Release(7))
            assert "use a registered rank: 3" == caught.value.hint
            node.answer = cannot
            with pytest.raises(RelayDebugError, match="debugpy is not installed"):
                await request(here.client, Attach(3))
            assert [] == here.forwarder.opened


async def test_stacks(relay: LocalRelay, tmp_path: Path) -> None:
    """A node that cannot answer is in the result; without a node there is none."""
    async with running(relay, tmp_path / "own") as here:
        with pytest.raises(NoListener, match="no agent is listening"):
            await request(here.client, Stacks())
        await request(here.client, Subscribe(("connected",)))
        async with node_of(relay, free_port(), fields={"host": "node-1"}, rank=3):
            await here.until("connected")
            found = await request(here.client, Stacks())
            assert "node-1: no stack: cannot stacks" == found.text
            assert [["node-1"]] == [group["hosts"] for group in found.data["groups"]]


async def test_stacks_in_the_first_moment(relay: LocalRelay, tmp_path: Path) -> None:
    """A relay-client that has just been started answers once its first search has found all agents."""
    async with (
        node_of(relay, free_port(), fields={"host": "node-1"}, rank=3),
        node_of(relay, free_port(), fields={"host": "node-2"}, rank=4),
        running(relay, tmp_path / "own") as here,
    ):
        found = await request(here.client, Stacks())
        assert ["node-1", "node-2"] == sorted(host for group in found.data["groups"] for host in group["hosts"])


def scripts(answer: Answer) -> list[str]:
    return [target["script"] for node in answer.data["nodes"] for target in node["targets"]]


async def test_targets_of_a_new_job(relay: LocalRelay, tmp_path: Path) -> None:
    """A job that has just been started is listed: `targets` searches, although the relay-client knows other agents."""
    async with running(relay, tmp_path / "own") as here, node_of(relay, free_port(), rank=3, script="first.py"):
        assert ["first.py"] == scripts(await request(here.client, Targets()))
        async with node_of(relay, free_port(), rank=0, script="second.py"):
            found = await request(here.client, Targets())
    assert ["first.py", "second.py"] == sorted(scripts(found))


@pytest.mark.parametrize("ends", [False, True])
async def test_a_relay_client_that_cannot_answer(
    relay: LocalRelay, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends: bool
) -> None:
    """A command connects to the agents itself if the relay-client is too old for the request, or exits meanwhile."""
    monkeypatch.setenv("RELAY_CLIENT_DIR", str(tmp_path / "own"))
    monkeypatch.setenv("RELAY_CONNECTION_STRING", relay.connection_string("send"))
    monkeypatch.setenv("RELAY_TUNNEL_KEY", b64encode(KEY).decode())
    arguments = make_parser().parse_args(["stacks", "--ca-file", str(relay.ca_file)])
    async with (
        node_of(relay, free_port(), fields={"host": "node-1"}, rank=3),
        contextlib.AsyncExitStack() as client,
    ):
        here = await client.enter_async_context(running(relay, tmp_path / "own"))
        if not ends:
            here.service.client = replace(here.service.client, verbs=())
        async with asking.performing(arguments) as perform:
            if ends:
                await client.aclose()
            answer = await asyncio.wait_for(perform(Stacks()), DEADLINE)
    assert "node-1: no stack: cannot stacks" == answer.text


async def test_push_of_a_missing_file(relay: LocalRelay, tmp_path: Path) -> None:
    """A file that cannot be read, and a job without ranks, are refused with a sentence."""
    async with running(relay, tmp_path / "run") as here:
        with pytest.raises(UsageError, match=r"cannot read .*absent\.py: No such file"):
            await request(here.client, Push(str(tmp_path / "absent.py"), "absent.py"))
        (tmp_path / "model.py").write_text("x = 1\n")
        with pytest.raises(NoListener, match="no agent is listening"):
            await request(here.client, Push(str(tmp_path / "model.py"), "model.py"))


class Pushing(Node):
    """A node whose process does not complete one phase of a push until it may."""

    def __init__(self, rank: Any, waits_in: Phase) -> None:
        super().__init__(rank)
        self.may_end = asyncio.Event()
        self._waits_in = waits_in

    async def answer(self, request: Wake | Question) -> Ready | NodeReplies:
        assert isinstance(request, push.Push)
        if request.phase is self._waits_in:
            await self.may_end.wait()
        (port,) = self.processes
        state = push.State.READY if request.phase is Phase.PREPARE else push.State.DONE
        return NodeReplies((Reply(port, 0, encode(push.Pushed(state=state))),))


@pytest.mark.parametrize("phase", [Phase.PREPARE, Phase.COMMIT])
async def test_cancelled_push(relay: LocalRelay, tmp_path: Path, phase: Phase) -> None:
    """A program learns what its push is waiting for, and whether it was too late to cancel the push."""
    (file := tmp_path / "a.py").write_text("x = 1")
    shown: asyncio.Queue[str] = asyncio.Queue()
    async with (
        process(free_port(), rank=0) as rank,
        agent(relay, node := Pushing(rank, phase)),
        running(relay, tmp_path / "run") as here,
    ):
        here.client.on_log = shown.put_nowait
        pushing = asyncio.ensure_future(here.client.request(Push(str(file), "a.py", now=True)))
        text = await asyncio.wait_for(shown.get(), DEADLINE)
        pushing.cancel()
        await asyncio.wait({pushing})
        asyncio.get_running_loop().call_soon(node.may_end.set)
        with pytest.raises(Interrupted) if phase is Phase.COMMIT else contextlib.nullcontext() as raised:
            await asyncio.wait_for(here.client.cancel("push"), DEADLINE)
    assert text.startswith("waiting up to 28 s more for all ranks: ")
    if raised is not None:
        assert "it was too late to stop the push; the code was replaced in rank 0" == str(raised.value)


async def test_logs(relay: LocalRelay, tmp_path: Path) -> None:
    """The last lines are returned, and with `follow` later ones are events."""
    port = free_port()
    async with running(relay, tmp_path / "own", port) as here:
        await who_leaves(port)
        found = await request(here.client, Logs(50, follow=True))
        assert f"port {port} connection 1: accepted" in [line.text for line in found.lines]
        await who_leaves(port)
        while (event := await here.until("log")).text != f"port {port} connection 2: accepted":
            pass
        assert "info" == event.level


async def who_leaves(port: int) -> None:
    """Connect and leave."""
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.close()
    await writer.wait_closed()


async def test_several_programs_at_once(relay: LocalRelay, tmp_path: Path) -> None:
    """One that is waiting holds up nobody, and each receives the answers to its own requests."""
    port = free_port()
    async with running(relay, tmp_path / "own") as here, running_clients(here.directory) as (other,):
        waiting = asyncio.ensure_future(request(other, Attach(3, wait=True)))
        for _ in range(3):
            assert () == (await request(here.client, GetStatus())).ports
        await request(here.client, Subscribe(("opened",)))
        async with node_of(relay, port, rank=3):
            assert port == (await waiting).local_port
            assert port == (await here.until("opened")).port


async def test_stop(relay: LocalRelay, tmp_path: Path) -> None:
    """The program is asked to end; its connections end with it, and its file is removed."""
    async with running(relay, tmp_path / "own") as here:
        await request(here.client, Stop())
        await asyncio.wait_for(here.service.stopping.wait(), DEADLINE)
        client = here.client
    with pytest.raises(ConnectionLost, match="the relay-client has exited"):
        await request(client, GetStatus())
    assert not (tmp_path / "own").exists()


async def test_without_unix_sockets(relay: LocalRelay, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there are none, the endpoint is a port with a token, which keeps no connections of others."""
    monkeypatch.delattr("socket.AF_UNIX")
    monkeypatch.delattr("asyncio.start_unix_server")
    port = free_port()
    async with node_of(relay, port, name="rank", rank=3), running(relay, tmp_path / "own") as here:
        (address,) = here.directory.addresses()
        assert address.port is not None
        await request(here.client, Subscribe(("opened",)))
        assert port == (await request(here.client, Attach(3, wait=True))).local_port
        assert port == (await here.until("opened")).port
        if not (needs_second_user.args[0] or needs_owners.args[0]):
            assert "" == await connecting_stranger(address.port, json.dumps({"id": 1, "request": "status"}) + "\n")
        with pytest.raises(RelayDebugError):
            await ControlClient.connect(Address(address.path, address.port, "0" * 64))
        monkeypatch.setattr(server, "AUTHENTICATION_TIMEOUT", 0.1)
        reader, writer = await asyncio.open_connection("127.0.0.1", address.port)
        with contextlib.suppress(ConnectionError):
            assert b"challenge" in await asyncio.wait_for(reader.read(), DEADLINE)  # until it is closed
        writer.close()
        assert isinstance(await request(here.client, GetStatus()), Status)


async def test_without_a_directory_the_client_works(
    relay: LocalRelay, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A relay-client that cannot open the control socket logs why, and forwards ports."""
    (tmp_path / "open").mkdir(mode=0o755)
    async with tunnels(relay) as client_tunnels, Forwarder(client_tunnels, []) as forwarder:
        with LogHistory() as logs:
            service = ControlService(client_id("attach", client_tunnels.endpoint), client_tunnels, forwarder, logs)
            async with ControlServer(service, ControlDirectory(tmp_path / "open")):
                pass
    assert "no control socket: " in caplog.text
    assert "is not a private directory of this user" in caplog.text


async def test_odd_programs(relay: LocalRelay, tmp_path: Path) -> None:
    """One that does not follow the protocol is disconnected; the others are not."""
    async with running(relay, tmp_path / "own") as here:
        (address,) = here.directory.addresses()
        reader, writer = await asyncio.open_unix_connection(str(address.path))
        await reader.readline()
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        assert b"" == await asyncio.wait_for(reader.read(), DEADLINE)
        writer.close()
        await writer.wait_closed()
        with pytest.raises(UsageError, match="unknown kind of event: 'exploded'"):
            await request(here.client, Subscribe(("exploded",)))
        assert () == (await request(here.client, GetStatus())).nodes
