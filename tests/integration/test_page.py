"""Facts about the server of the page, with a real relay, agents and HTTP connections."""

import argparse
import asyncio
import contextlib
import json
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from importlib.resources import files
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import pytest
import pytest_asyncio
from aiohttp import web

from relay_client.cli.forward import forward
from relay_client.compare.groups import as_objects
from relay_client.control.messages import EVENTS
from relay_client.page import server
from relay_client.page.server import FILES, PageServer
from relay_core.agent_api.collectives import ProcessCollectives
from relay_core.agent_api.evaluation import Value
from relay_core.agent_api.stacks import Frame, ProcessStacks, ThreadStack
from relay_core.errors import LocalPortInUse
from tests.support.machine import deadline
from tests.support.machine.deadline import DEADLINE
from tests.support.machine.other_user import connecting_stranger, needs_second_user
from tests.support.machine.ports import free_port
from tests.support.machine.streams import echo, local_server
from tests.support.network.fleet import node_of, tunnels
from tests.support.network.relay import LocalRelay
from tests.support.systems.page import ServedPage, running_job_of, served_page

DATA = ("/updates", "/stacks", "/hang", "/values?path=x", "/differences?path=x")


@pytest_asyncio.fixture
async def page(relay: LocalRelay) -> AsyncIterator[ServedPage]:
    async with served_page(relay) as running:
        yield running


@pytest_asyncio.fixture
async def http(page: ServedPage) -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(page.address) as session:
        yield session


async def key_of(page: ServedPage, http: aiohttp.ClientSession) -> dict[str, str]:
    """Use the newest link, and return the header of a tab with a session."""
    async with http.post("/session", data=page.links[-1].partition("#")[2]) as response:
        assert 200 == response.status
        return {"Authorization": f"Bearer {(await response.json())['key']}"}


async def updates(response: aiohttp.ClientResponse) -> AsyncIterator[dict[str, Any]]:
    async for line in response.content:
        if line.startswith(b"data: "):
            yield json.loads(line.removeprefix(b"data: "))


async def test_a_link_works_once(page: ServedPage, http: aiohttp.ClientSession) -> None:
    """A second use is refused with a sentence; the user was shown another link, which works."""
    await key_of(page, http)
    async with http.post("/session", data=page.links[0].partition("#")[2]) as response:
        assert (403, f"{server.NO_SESSION}\n") == (response.status, await response.text())
    assert 2 == len(set(page.links))
    await key_of(page, http)


@pytest.mark.parametrize("header", ["", "Bearer ", "Bearer x", "Basic x"])
@pytest.mark.parametrize("path", DATA)
async def test_no_data_without_a_session(http: aiohttp.ClientSession, path: str, header: str) -> None:
    """Every request for data is refused with 403."""
    async with http.get(path, headers={"Authorization": header}) as response:
        assert 403 == response.status


@pytest.mark.parametrize("path", [*FILES, *DATA, "/session"])
async def test_a_foreign_host(page: ServedPage, http: aiohttp.ClientSession, path: str) -> None:
    """A name that leads to 127.0.0.1 gets nothing, not even with a valid key."""
    headers = {**await key_of(page, http), "Host": f"attacker.example:{urlsplit(page.address).port}"}
    async with http.get(path, headers=headers) as response:
        assert (403, f"{server.FOREIGN_HOST}\n") == (response.status, await response.text())


@pytest.mark.parametrize("origin", ["http://attacker.example", "null", "https://127.0.0.1", "http://127.0.0.1:1"])
async def test_a_foreign_origin(page: ServedPage, http: aiohttp.ClientSession, origin: str) -> None:
    """Another page opens no session, not even with a valid token; the page itself then still can."""
    token = page.links[-1].partition("#")[2]
    async with http.post("/session", data=token, headers={"Origin": origin}) as response:
        assert (403, f"{server.FOREIGN_ORIGIN}\n") == (response.status, await response.text())
    async with http.post("/session", data=token, headers={"Origin": page.address.rstrip("/")}) as response:
        assert 200 == response.status


@needs_second_user
async def test_another_user(page: ServedPage, http: aiohttp.ClientSession) -> None:
    """Another user of this machine gets nothing, not even with a valid key."""
    port, key = urlsplit(page.address).port or 0, await key_of(page, http)
    request = f"GET /stacks HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: {key['Authorization']}\r\n"
    assert "" == await connecting_stranger(port, f"{request}Connection: close\r\n\r\n")
    assert "" == await connecting_stranger(port, "GET ")  # reset before the request is complete


@pytest.mark.parametrize("half", [b"", b"GET / HTTP/1.1\r\nHost: x\r\n"])
async def test_a_connection_without_a_request(monkeypatch: pytest.MonkeyPatch, relay: LocalRelay, half: bytes) -> None:
    """A connection on which no complete request arrives is closed after some seconds."""
    monkeypatch.setattr(server, "REQUEST_TIMEOUT", 0.05)
    async with served_page(relay) as page:
        assert b"" == await until_closed(page, half)


async def test_a_request_without_its_body(monkeypatch: pytest.MonkeyPatch, relay: LocalRelay) -> None:
    """A token that does not arrive is refused after some seconds."""
    monkeypatch.setattr(server, "REQUEST_TIMEOUT", 0.05)
    async with served_page(relay) as page:
        host = urlsplit(page.address).netloc
        half = f"POST /session HTTP/1.1\r\nHost: {host}\r\nContent-Length: 40\r\nConnection: close\r\n\r\n"
        assert b" 403 " in (await until_closed(page, half.encode())).partition(b"\r\n")[0]


async def test_an_idle_connection(monkeypatch: pytest.MonkeyPatch, relay: LocalRelay) -> None:
    """A connection that stays open after its request is closed if no other request follows."""
    monkeypatch.setattr(server, "IDLE_TIMEOUT", 0.05)
    async with served_page(relay) as page:
        request = f"GET /page.css HTTP/1.1\r\nHost: {urlsplit(page.address).netloc}\r\n\r\n"
        assert b" 200 " in (await until_closed(page, request.encode())).partition(b"\r\n")[0]


async def until_closed(page: ServedPage, request: bytes) -> bytes:
    """Send a request, keep the connection open, and return what arrives until the page closes it."""
    reader, writer = await asyncio.open_connection("127.0.0.1", urlsplit(page.address).port)
    writer.write(request)
    received = await asyncio.wait_for(reader.read(), DEADLINE)
    writer.close()
    await writer.wait_closed()
    return received


async def test_many_connections(page: ServedPage, http: aiohttp.ClientSession) -> None:
    """Only so many connections are open at the same time; the next one is closed, and one that ends makes room."""
    async with AsyncExitStack() as stack:
        crowd = [await connected(stack, page) for _ in range(server.MAX_CONNECTIONS)]
        for reader, writer in crowd:
            writer.write(f"GET /page.css HTTP/1.1\r\nHost: {urlsplit(page.address).netloc}\r\n\r\n".encode())
            assert await asyncio.wait_for(reader.readline(), DEADLINE)
        reader, _ = await connected(stack, page)
        with contextlib.suppress(ConnectionResetError):
            assert b"" == await asyncio.wait_for(reader.read(), DEADLINE)
        crowd[0][1].close()
        while True:
            with contextlib.suppress(aiohttp.ClientError):
                async with http.get("/") as response:
                    assert 200 == response.status
                    return


async def connected(stack: AsyncExitStack, page: ServedPage) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", urlsplit(page.address).port)
    stack.callback(writer.transport.abort)
    return reader, writer


@pytest.mark.parametrize("path", FILES)
async def test_files(http: aiohttp.ClientSession, path: str) -> None:
    """The page has a policy that allows no code but its own files."""
    async with http.get(path) as response:
        assert (200, FILES[path][1]) == (response.status, response.content_type)
        assert "script-src 'self';" in response.headers["Content-Security-Policy"]


async def test_other_paths_and_methods(page: ServedPage, http: aiohttp.ClientSession) -> None:
    """They get 404 and 405, and nothing that is larger than a token is read."""
    headers = await key_of(page, http)
    async with http.get("/../pyproject.toml", headers=headers) as response:
        assert 404 == response.status
    for path in ("/stacks", "/values", "/differences"):
        async with http.post(path, headers=headers) as response:
            assert 405 == response.status
    async with http.post("/session", data="x" * 2000) as response:
        assert 413 == response.status


async def test_updates(relay: LocalRelay) -> None:
    """A tab gets the state at once, and another one when a rank changes, with the event."""
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        job, page = await enter(running_job_of(relay, 4, 2)), await enter(served_page(relay))
        http = await enter(aiohttp.ClientSession(page.address))
        stream = updates(await enter(http.get("/updates", headers=await key_of(page, http))))
        async for update in stream:
            if [2, 2] == [len(node["targets"]) for node in update["state"]["nodes"]]:
                break
        job.change(3, state="crashed", detail="ValueError: bad")
        await until(stream, "rank 3 on node-1 crashed: ValueError: bad")
        await page.stop(stack, 0)
        await until(stream, "rank 0 on node-0 is stopped at train.py:10 (pause)")


async def test_a_tab_that_is_closed_at_once(
    monkeypatch: pytest.MonkeyPatch, page: ServedPage, http: aiohttp.ClientSession, caplog: pytest.LogCaptureFixture
) -> None:
    """A request whose connection is lost before its answer begins is not logged as an error."""
    headers = await key_of(page, http)

    def lose(_server: PageServer, request: web.Request) -> bool:
        assert request.transport is not None
        request.transport.abort()
        return True

    monkeypatch.setattr(PageServer, "_has_session", lose)
    with pytest.raises(aiohttp.ClientConnectionError):
        await http.get("/updates", headers=headers)
    monkeypatch.undo()
    async with http.get("/updates", headers=headers) as response:
        await anext(updates(response))
    assert [] == [record.message for record in caplog.records if record.levelname == "ERROR"]


async def until(stream: AsyncIterator[dict[str, Any]], text: str) -> None:
    """Read updates until one has an event with this text."""
    async for update in stream:
        if text in [event["text"] for event in update["events"]]:
            return
    raise AssertionError(text)


async def test_a_page_that_is_opened_later(relay: LocalRelay, page: ServedPage, http: aiohttp.ClientSession) -> None:
    """Its first update has the events since relay-client was started, without log lines."""
    async with running_job_of(relay, 2, 2):
        async with http.get("/updates", headers=await key_of(page, http)) as response:
            async for update in updates(response):
                if any(event["event"] == "connected" for event in update["events"]):
                    break
        async with http.get("/updates", headers=await key_of(page, http)) as response:
            first = await anext(updates(response))
        kinds = {event["event"] for event in first["events"]}
        assert {"connected", "state"} <= kinds <= set(EVENTS) - {"log"}


async def test_crashes_are_kept(
    monkeypatch: pytest.MonkeyPatch, relay: LocalRelay, page: ServedPage, http: aiohttp.ClientSession
) -> None:
    """A page that is opened later gets them although many other events have followed."""
    monkeypatch.setattr(server, "MAX_EVENTS", 5)
    headers = await key_of(page, http)
    async with running_job_of(relay, 2, 2) as job, http.get("/updates", headers=headers) as response:
        stream = updates(response)
        job.change(0, state="crashed")
        await until(stream, "rank 0 on node-0 crashed")
        for state in ("waiting", "running") * 3:
            job.change(1, state=state)
            await until(stream, f"rank 1 on node-0 is {'waiting for a debugger' if state == 'waiting' else state}")
        async with http.get("/updates", headers=headers) as later:
            kept = (await anext(updates(later)))["events"]
    assert (5, ["crashed"]) == (len(kept), [event["state"] for event in kept if event["rank"] == 0])


async def test_requests(relay: LocalRelay, page: ServedPage, http: aiohttp.ClientSession) -> None:
    """Stacks and the verdict on a hang are those of the control socket; an error is a sentence with its hint."""
    headers = await key_of(page, http)
    async with http.get("/stacks", headers=headers) as response:
        error = (await response.json())["error"]
        assert error["sentence"].startswith("no agent is listening on 'myhc'")
        assert error["hint"].startswith("start the job with --is-debug true")
    async with running_job_of(relay, 2, 2):
        async with http.get("/updates", headers=headers) as response:
            async for update in updates(response):
                if update["state"]["nodes"]:
                    break
        async with http.get("/hang", headers=headers) as response:
            assert "text" in await response.json()


async def test_fields_of_answers(relay: LocalRelay, page: ServedPage, http: aiohttp.ClientSession) -> None:
    """The page's code reads no field of an answer that the server does not send."""
    script, port = (files("relay_client.page") / "assets" / "inspect.js").read_text(), free_port()
    readers = dict(re.findall(r"report\('(/\w+)', \(\{ (\w+) \}\) =>", script))
    headers, answers = await key_of(page, http), {}
    async with node_of(relay, port, rank=0) as node:
        thread = ThreadStack("MainThread", 1, True, (Frame("train.py", 7, "train"),))
        stacks = ProcessStacks("", (thread,))
        node.collectives = [ProcessCollectives(rank=0, stacks=stacks)]
        for path in readers:
            async with http.get(path, headers=headers) as response:
                answers[path] = await response.json()
    assert {"/stacks": "data", "/hang": "text"} == readers
    assert all(readers[path] in answer for path, answer in answers.items()), answers
    (group,) = answers["/stacks"]["data"][re.search(r"data\.(\w+)", script)[1]]  # type: ignore[index]
    assert set(re.findall(r"\bgroup\.(\w+)", script)) <= group.keys()
    assert set(re.findall(r"\bvalue\.(\w+)", script)) <= as_objects([Value()])[0].keys()
    assert set(re.findall(r"\bframe\.(\w+)", script)) <= group["threads"][0]["frames"][0].keys()


@pytest.mark.parametrize("kind", ["values", "differences"])
async def test_refused_expressions(page: ServedPage, http: aiohttp.ClientSession, kind: str) -> None:
    """What is not a path, or names no ports, is refused without a request to a job."""
    headers = await key_of(page, http)
    for query in ({"path": "f()"}, {"path": ""}, {}, {"path": "x", "ports": "x"}):
        async with http.get(f"/{kind}", params=query, headers=headers) as response:
            assert (await response.json())["error"]["sentence"]


async def test_a_port_in_use(page: ServedPage) -> None:
    """The error names the port."""
    async with local_server(echo) as (port, _):
        with pytest.raises(LocalPortInUse, match=f"cannot listen on port {port}: "):
            async with PageServer(page.service, page.links.append, port):
                pass


async def test_a_chosen_port(page: ServedPage) -> None:
    """The page is served there, and the link names it."""
    port = free_port()
    async with PageServer(page.service, page.links.append, port) as server:
        server.show_link()
        assert page.links[-1].startswith(f"http://127.0.0.1:{port}/#")


async def test_an_open_page_does_not_delay_the_end(relay: LocalRelay) -> None:
    """relay-client exits while a tab is connected, which then gets the end of its updates."""
    async with AsyncExitStack() as stack:
        running = await stack.enter_async_context(served_page(relay))
        async with AsyncExitStack() as browser:
            http = await browser.enter_async_context(aiohttp.ClientSession(running.address))
            key = await key_of(running, http)
            response = await browser.enter_async_context(http.get("/updates", headers=key))
            stream = updates(response)
            await anext(stream)
            await asyncio.wait_for(stack.aclose(), DEADLINE)
            with pytest.raises((aiohttp.ClientError, StopAsyncIteration)):
                while True:
                    await anext(stream)


async def test_the_last_states(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], relay: LocalRelay
) -> None:
    """While relay-client is being stopped, a page gets no state without the job: it keeps the last one."""
    monkeypatch.setattr(server, "MIN_INTERVAL", 0.0)
    switches = {"no_listen": False, "listen": False, "allow_terminate": False, "json": False}
    arguments = argparse.Namespace(idle_exit=None, ui=free_port(), **switches)
    async with node_of(relay, free_port(), rank=3), AsyncExitStack() as stack:
        client = asyncio.ensure_future(forward(tunnels(relay), [free_port()], arguments))
        stack.callback(client.cancel)
        printed = ""

        def is_printed() -> bool:
            nonlocal printed
            printed += capfd.readouterr().err
            return "works once): " in printed

        await deadline.until(is_printed)
        link = urlsplit(printed.partition("works once): ")[2].split()[0])
        http = await stack.enter_async_context(aiohttp.ClientSession(f"http://{link.netloc}"))
        async with http.post("/session", data=link.fragment) as response:
            key = {"Authorization": f"Bearer {(await response.json())['key']}"}
        async with http.get("/updates", headers=key) as response:
            with contextlib.suppress(aiohttp.ClientPayloadError):  # the page's server has closed the connection
                has_begun = False
                async for update in updates(response):
                    if update["state"]["nodes"] and not has_begun:
                        has_begun = client.cancel()
                    assert not has_begun or update["state"]["nodes"], update["events"]
        assert has_begun
