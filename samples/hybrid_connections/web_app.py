"""An aiohttp application behind a hybrid connection; requests are forwarded to the application on this machine."""

import asyncio
import os

from aiohttp import ClientSession, web

from relay_core.auth import credential_from_connection_string
from relay_core.hyco import ConnectionString
from relay_core.net import HttpRequest, HttpResponse, HybridConnectionListener


async def hello(request: web.Request) -> web.Response:
    """Answer any request."""
    return web.json_response({"path": request.path, "via": request.headers["Via"], "body": await request.text()})


async def main() -> None:
    """Start the application on loopback, and forward requests to it."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", hello)
    await (runner := web.AppRunner(app)).setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    base = "http://{}:{}".format(*runner.addresses[0])
    address = ConnectionString.parse(os.environ["RELAY_LISTEN"])

    async def forward(request: HttpRequest) -> HttpResponse:
        async with (
            ClientSession(auto_decompress=False) as session,
            session.request(
                request.method, base + request.target, headers=request.headers, data=request, allow_redirects=False
            ) as answer,
        ):
            return HttpResponse(answer.status, await answer.read(), answer.headers, answer.reason or "")

    credential = credential_from_connection_string(address)
    async with HybridConnectionListener(address.endpoint(), credential, handler=forward) as listener:
        print("listening", flush=True)
        await listener.serve_http()


asyncio.run(main())
