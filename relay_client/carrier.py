"""How a local connection gets to the agent: one rendezvous for each.

The seam to the rest of the client is `Carrier.open(port)`; what carries the bytes is nobody else's business.
"""

from __future__ import annotations

import ssl

from relay_core.errors import NoListener, Rejected
from relay_core.hyco.address import Endpoint
from relay_core.hyco.credential import Credential
from relay_core.net.connector import connect
from relay_core.net.rendezvous import PORT_HEADER, PROBE_HEADER, RendezvousStream
from relay_core.net.stream import ByteStream

__all__ = ["Carrier"]

MISDIRECTED = 421
"""The answer of an agent that does not serve the port that was asked for."""


class Carrier:
    """Opens byte streams to the agents of one hybrid connection.

    Args:
        endpoint: The hybrid connection.
        credential: Must carry the Send right.
        tls: Decides about trust in the relay.
    """

    def __init__(self, endpoint: Endpoint, credential: Credential, tls: ssl.SSLContext) -> None:
        self._endpoint = endpoint
        self._credential = credential
        self._tls = tls

    def __repr__(self) -> str:
        return f"<Carrier {self._endpoint}>"

    async def check(self) -> str:
        """Ask the relay and an agent, without connecting to anything behind it; return what the agent says it serves.

        Raises:
            NoListener: the credentials are good and no agent is there.
            RelayDebugError: any other reason why connecting cannot work.
        """
        try:
            websocket = await connect(self._endpoint, self._credential, headers={PROBE_HEADER: "1"}, tls=self._tls)
        except Rejected as rejected:
            return rejected.reason
        await websocket.close()  # somebody else's listener, which does not know the header
        return "a listener that is no relay-agent"

    async def open(self, port: int) -> ByteStream:
        """Return a stream to what serves logical port `port`.

        Raises:
            NoListener: no agent is there, or none that serves this port; later there may be one.
            RelayDebugError: any other reason.
        """
        try:
            return RendezvousStream(
                await connect(self._endpoint, self._credential, headers={PORT_HEADER: str(port)}, tls=self._tls)
            )
        except Rejected as rejected:
            if rejected.status == MISDIRECTED:
                raise NoListener(
                    f"no agent on '{self._endpoint.path}' serves port {port}; {rejected.reason}",
                    hint="check --ports against the job's --debug-port",
                ) from None
            raise
