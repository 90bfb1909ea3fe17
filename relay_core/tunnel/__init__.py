"""The tunnel protocol between client and agent, sans-IO: bytes in, bytes and events out.

A session carries streams and outlives its transports. This package implements streams, sequence numbers and resume;
encryption is in `relay_core.net.session.secure_channel`. No module here opens a socket, reads a clock or draws a random
number. `docs/concepts/protocol.md` describes the wire format and the state machines.

Why a session of its own. A relayed WebSocket ends when the network changes, when a laptop sleeps, and daily; TCP
connections of editors must not. What has to survive (numbers, acknowledgements, credit) therefore belongs to an object
above the transports. Nothing below can do it: the relay carries WebSockets only, so QUIC and MPTCP, which survive a
change of address, are not available between client and agent, and both would end with the relay's connection anyway.

Invariants, which the property-based tests check under any schedule of cuts, delays and overlapping transports:

  * A frame that changes a stream has a sequence number. A frame that concerns one transport has none (ACK, PING, PONG),
    nor has one that a newer one replaces (STATUS): keeping it for a resume would be pointless.
  * There is one sequence for the session, not one for each stream. OPEN, RST and GOAWAY have to stay in order with
    data, and a resume exchanges one number in each direction however many streams are open.
  * ACK means "safe to forget", WINDOW means "the consumer has read it". With one promise for both, an editor that does
    not read would keep the session's replay buffer full and so stop all other streams.
  * A frame is acknowledged after its handler. One that raises is not, and is sent again on the next transport: what a
    faulty proxy has damaged is repaired, and `MAX_REPEATED_BREACHES` ends a session that makes no progress.
  * Numbers of transports (epochs) only grow, and a session leaves a transport only after the proof of the next one has
    been verified. Otherwise a late error of the old transport, or an attempt of somebody else, would end the new one.

What is ugly and stays: an agent cannot know whether its WELCOME has arrived, so `Session` takes any frame of the client
as the confirmation, and gives an unconfirmed session less time. An acknowledgement of WELCOME would be one more frame
type that proves no more. And a breach at a frame ends the transport even if the peer is certainly faulty, because the
first breach cannot be distinguished from corrupted bytes.
"""
