"""Reads a client's request from its stream, has it executed, and sends the response or the reason of its failure."""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from relay_core.agent_api.questions import Question
from relay_core.agent_api.requests import Failure, Request, Response, decode_body, stream_name
from relay_core.errors import ConnectionLost, RelayDebugError
from relay_core.net.session.stream import SessionStream
from relay_core.records import encode

logger = logging.getLogger(__name__)

Answer = Callable[[Any], Awaitable[Response | None]]
"""Executes a request and returns its response, or None if it has sent one itself."""


async def respond_on_stream(answer: Answer, request: Request, stream: SessionStream, user: str) -> None:
    """Execute a request, send its response or a `Failure` as one JSON object, and close the stream.

    The rest of a `Question` is read from the stream first. If `answer` returns None, nothing is sent or closed.

    Args:
        answer: Executes the request.
        request: As read from the name of the stream.
        stream: Has the body of the request, if it has one.
        user: The client's user, for the log.
    """
    try:
        if isinstance(request, Question):
            body = decode_body(await stream.read_all(request.max_body, "the request body"))
            request = request.parse_body(body, user)
            if line := request.log_line():
                logger.info("%s", line)
        result = await answer(request)
        if result is None:
            return
        response = encode(result)
    except RelayDebugError as error:
        if not isinstance(error, ConnectionLost):
            logger.warning("request '%s' from %s failed: %s", stream_name(request), user, error)
        response = encode(Failure(error.sentence, error.hint))
    with contextlib.suppress(ConnectionLost):
        await stream.write(json.dumps(response).encode())
        await stream.close()
