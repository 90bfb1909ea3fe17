"""The gestures of relayed HTTP requests in a line each: those of a sender, and those of a listener."""

import json
from urllib.parse import urlsplit

from tests.support.network.raw_websocket import BINARY, TEXT, RawConnection, RawWebSocket, open_websocket


class Sent:
    """A `request` message as a listener got it."""

    def __init__(self, fields: dict, body: bytes = b"") -> None:
        self.fields = fields
        self.body = body

    @property
    def target(self) -> str:
        """Path and query of the address."""
        url = urlsplit(self.fields["address"])
        return f"{url.path}?{url.query}"


async def get_request(websocket: RawWebSocket) -> Sent:
    """Read a request and its body."""
    opcode, text = await websocket.read_message()
    assert TEXT == opcode
    message = json.loads(text)
    assert ["request"] == list(message)
    sent = Sent(message["request"])
    if sent.fields.get("body"):
        opcode, sent.body = await websocket.read_message()
        assert BINARY == opcode
    return sent


def response(sent: Sent, status: object = 200, *, body: bool = False, headers=None, reason: str = "") -> bytes:
    fields = {"requestId": sent.fields["id"], "statusCode": status, "statusDescription": reason, "body": body}
    return json.dumps({"response": fields | {"responseHeaders": headers or {}}}).encode()


async def respond(websocket: RawWebSocket, sent: Sent, body: bytes | None = None, **options) -> None:
    """Send a response and, in one frame, its body."""
    await websocket.send(TEXT, response(sent, body=body is not None, **options))
    if body is not None:
        await websocket.send(BINARY, body)


async def ask(relay, method: str = "GET", path: str = "/hc", headers=(), body: bytes = b"", **options) -> RawConnection:
    """Send an HTTP request with a token."""
    connection = await RawConnection.dial(relay.target)
    relay.stack.push_async_callback(connection.close)
    relay.stack.callback(connection.abort)
    await ask_again(relay, connection, method, path, headers, body, **options)
    return connection


async def ask_again(relay, connection, method="GET", path="/hc", headers=(), body=b"", *, auth=None) -> None:
    """Send a request on an open connection."""
    framing = {name.lower() for name, _ in headers} & {"content-length", "transfer-encoding"}
    length = [("Content-Length", str(len(body)))] if body and not framing else []
    auth = relay.auth("client") if auth is None else auth
    await connection.ask(method, path, [("Host", "localhost"), *auth, *length, *headers], body)


async def rendezvous(relay, sent: Sent) -> RawWebSocket:
    """Connect to the address of a request."""
    return await relay.keep(await open_websocket(relay.target, sent.target))
