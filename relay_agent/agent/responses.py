"""Responses to the requests of clients: on a stream of its own, or as a message."""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from relay_agent.agent.targets import TargetProvider
from relay_core.agent_api.evaluation import SearchStep
from relay_core.agent_api.requests import (
    Failure,
    Request,
    Response,
    decode_body,
    encode_message,
    encode_response,
    parse_message,
    stream_name,
)
from relay_core.errors import ConnectionLost, RelayDebugError
from relay_core.net.session.stream import SessionStream
from relay_core.records import encode

__all__ = ["Answer", "respond_on_stream", "respond_to_message"]

logger = logging.getLogger(__name__)

Answer = Callable[[Any], Awaitable[Response | None]]
"""Executes a request and returns its response, or None if it has sent one itself."""


async def respond_on_stream(answer: Answer, request: Request, stream: SessionStream, user: str) -> None:
    """Send the response to a request as one JSON object, and close the stream.

    Args:
        answer: Executes the request.
        request: As read from the name of the stream.
        stream: Has the body of the request, if it has one.
        user: The client's user, for the log.
    """
    try:
        if request.max_body:
            body = decode_body(await stream.read_all(request.max_body, "the request body"))
            request = request.parse_body(body, user)
        _log(request, user)
        result = await answer(request)
        if result is None:
            return
        response = encode_response(result)
    except RelayDebugError as error:
        if not isinstance(error, ConnectionLost):
            logger.warning("request '%s' from %s failed: %s", stream_name(request), user, error)
        response = encode(Failure(error.sentence, error.hint))
    with contextlib.suppress(ConnectionLost):
        await stream.write(json.dumps(response).encode())
        await stream.close()


async def respond_to_message(
    provider: TargetProvider, body: bytes, user: str, respond: Callable[[bytes], None]
) -> None:
    """Respond to a request that a client has sent as a message.

    Args:
        provider: Executes the request.
        body: The message.
        user: The client's user, for the log.
        respond: Called with the response.
    """
    try:
        request = parse_message(body)
        if isinstance(request, SearchStep):
            respond(await provider.search(request))
            return
        _log(request, user)
        response = encode_response(await provider.answer(request))
    except RelayDebugError as error:
        logger.warning("a request from %s failed: %s", user, error)
        response = encode(Failure(error.sentence, error.hint))
    respond(encode_message(response))


def _log(request: Request, user: str) -> None:
    if line := request.log_line(user):
        logger.info("%s", line)
