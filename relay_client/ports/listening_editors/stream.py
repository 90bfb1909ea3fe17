"""One connection that a job has opened to a listening editor, from accept to close.

The local program is debugpy's adapter, which the editor has started. The adapter passes relay-client's events on, just
as it passes on the job's; after `terminated`, it ends the editor's session.
"""

from __future__ import annotations

import asyncio
import logging

from relay_client.agents.roster import Destination
from relay_client.agents.tunnels import Tunnels
from relay_client.ports.connection_records import ConnectionRecord
from relay_client.ports.editor_link import FAREWELL_TIMEOUT, EditorLink, end_reason
from relay_client.ports.layers.reverse_request_guard import RequestGuard
from relay_client.prefetch.response_cache import ResponseCache
from relay_core.errors import ConnectionLost, RelayDebugError
from relay_core.layers.layer import Layer
from relay_core.layers.stack import LayerStack
from relay_core.net.session.stream import SessionStream
from relay_core.net.streams.bridge import Bridge
from relay_core.net.streams.endpoint import LocalSide
from relay_core.net.tasks import first_completed
from relay_core.tunnel.outcomes import ResetCode

__all__ = ["carry_to_editor"]

logger = logging.getLogger(__name__)


async def carry_to_editor(
    tunnels: Tunnels,
    record: ConnectionRecord,
    endpoint: LocalSide,
    stream: SessionStream,
    *,
    prefetch: bool,
    allow_terminate: bool,
) -> None:
    """Carry a stream from the job until it ends, and show the editor why it has ended.

    Args:
        tunnels: The tunnels to the agents.
        record: The connection, as data for display.
        endpoint: The connection to the editor; closed at the end.
        stream: The stream from the job; closed at the end.
        prefetch: Whether the agent prefetches at stops.
        allow_terminate: Whether the editor may terminate the job.
    """
    link = EditorLink(tunnels, Destination(record.port), record, allow_terminate=allow_terminate, listens=True)
    layers: list[Layer] = [link.session, RequestGuard(None, link.refused), record.observer()]
    layers += [ResponseCache(is_adapter_local=True)] if prefetch else []
    try:
        await link.carry(Bridge(endpoint, stream, LayerStack(layers), traffic=record.traffic))
        await stream.close()
        await endpoint.close()
        sent, received = record.traffic.sent, record.traffic.received
        logger.info("port %d: connection closed (%d bytes sent, %d received)", record.port, sent, received)
    except RelayDebugError as error:
        stream.abort(error.sentence if isinstance(error, ConnectionLost) else "")
        record.closed(end_reason(error))
        logger.warning("port %d: connection lost: %s", record.port, error.sentence)
        link.write_end(endpoint, [link.session], error)
        await first_completed(endpoint.close(), timeout=FAREWELL_TIMEOUT)
    except asyncio.CancelledError:
        stream.abort(record.why_cancelled, code=ResetCode.CLOSED)
        link.write_end_now(endpoint, [link.session], f"{record.why_cancelled}; the job continues without a debugger")
        raise
    finally:
        endpoint.abort()
