"""Responses to the requests of clients: on a stream of its own, or as a message."""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from relay_agent.agent.targets import TargetProvider
from relay_core.agent_api import push
from relay_core.agent_api.evaluation import SearchStep
from relay_core.agent_api.members import describe_ranks
from relay_core.agent_api.requests import (
    Evaluate,
    Failure,
    Push,
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

MAX_BODY = 128 * 1024
"""Maximum size in bytes of the JSON in an evaluation request; each character may take up to four bytes."""
BODY = "the request body"
PUSH_STEPS = {
    push.Phase.PREPARE: "preparing the new code",
    push.Phase.HOLD: "holding the main threads",
    push.Phase.COMMIT: "replacing the code",
    push.Phase.ABORT: "cancelled",
}
"""Descriptions of the phases of a push, for the log."""


async def respond_on_stream(answer: Answer, request: Request, stream: SessionStream, user: str) -> None:
    """Send the response to a request as one JSON object, and close the stream.

    Args:
        answer: Executes the request.
        request: As read from the name of the stream.
        stream: Has the body of the request, if it has one.
        user: The client's user, for the log.
    """
    try:
        if isinstance(request, Evaluate):
            request = Evaluate.parse_body(decode_body(await stream.read_all(MAX_BODY, BODY)))
            _log_evaluation(request, user)
        elif isinstance(request, Push):
            request = Push.parse_body(decode_body(await stream.read_all(push.MAX_BODY, BODY)), user)
            logger.info("push by %s to %s: %s", user, describe_ranks(request.ranks), PUSH_STEPS[request.phase])
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
        _log_evaluation(request, user)
        response = encode_response(await provider.answer(request))
    except RelayDebugError as error:
        logger.warning("a request from %s failed: %s", user, error)
        response = encode(Failure(error.sentence, error.hint))
    respond(encode_message(response))


def _log_evaluation(request: Evaluate, user: str) -> None:
    logger.info("evaluating an expression in %s for %s", describe_ranks(request.ranks), user)
