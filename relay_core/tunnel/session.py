"""State machine of a session between client and agent, which outlives its transports.

                  attach(epoch)                 GOAWAY, grace expired, refused, abort()
    DETACHED <------------------> ATTACHED   ----------------------------------------------> OVER
              lost, dead, breach     | attach(epoch + n): the old transport is superseded
                                     +---+

Transports are identified by their epoch. Data from an older transport, and its end, are ignored. Every call may cause
events and frames. After each call, the driver processes `events()`, sends what `data_to_send()` returns and sets a
timer for `next_deadline()`. Received frames are always processed immediately, because waiting for a slow consumer could
block the peer's ACKs and WINDOWs and stop both directions. The credit of each stream limits the bytes that its owner
must buffer.
"""

from __future__ import annotations

from collections.abc import Callable

from relay_core.tunnel import frames
from relay_core.tunnel.events import Event, RoundTrip, SessionOver, StatusReceived, TransportDead
from relay_core.tunnel.frames import HEADER_SIZE, IGNORABLE, Buffer, Frame, FrameDecoder, JsonObject, encode_frame
from relay_core.tunnel.limits import KIB, MAX_CONTROL_PAYLOAD, MAX_REPEATED_BREACHES, UNCONFIRMED_GRACE, Settings
from relay_core.tunnel.liveness import Liveness
from relay_core.tunnel.messages import Greeting
from relay_core.tunnel.outcomes import Breach, Death, OverReason, ProtocolBreach, Refusal, Role
from relay_core.tunnel.scheduler import Receipts, Scheduler
from relay_core.tunnel.stream_table import Streams, StreamTable


class Session:
    """One side of a session; created by `ClientHandshake` and `SessionTable`.

    Args:
        role: This side's role.
        session_id: 16 bytes, chosen by the agent.
        secret: 32 bytes, chosen by the agent.
        settings: Limits and timers of this side.
        peer: The peer's greeting.
        now: Monotonic seconds.
    """

    def __init__(
        self, role: Role, *, session_id: bytes, secret: bytes, settings: Settings, peer: Greeting, now: float
    ) -> None:
        self.id = session_id
        self.secret = secret
        self.peer = peer
        self.epoch = 0
        """Number of the newest transport: attached, lost or, on a client, only attempted."""
        self.attached = False
        self.over: SessionOver | None = None
        self.grace = settings.grace
        """Seconds for which the session is kept without a transport; the owner may change it at any time."""
        self._settings = settings
        self.transport_epoch = 0
        """Epoch of the transport that was attached last; 0 before the first one."""
        self._decoder = FrameDecoder(settings.limits.max_payload)
        self._liveness = Liveness(settings, now)
        self._receipts = Receipts(settings)
        self._scheduler = Scheduler(settings, peer.limits.max_payload)
        self._events: list[Event] = []
        self.streams = Streams(
            StreamTable(role, settings=settings, peer=peer.limits, now=now),
            self._scheduler,
            max_window=settings.max_window,
            round_trip=lambda: self._liveness.round_trip,
            emit=self._emit,
        )
        self.detached_at = now
        """When the session last lost its transport, or was created."""
        self._confirmed = role is Role.CLIENT
        """True if the client has certainly received WELCOME."""
        self._closing = False
        self._pong: bytes | None = None
        self._status: bytes | None = None
        self._status_due = False
        self._breaches = 0
        self._breached_at = 0
        # With two tables, a sequenced frame without a number, or an ACK with one, is treated as an unknown frame.
        self._sequenced = {**self.streams.handlers, frames.GOAWAY: self._on_goaway}
        self._unsequenced: dict[int, Callable[[Frame, float], None]] = {
            frames.ACK: self._on_ack,
            frames.PING: self._on_ping,
            frames.PONG: self._on_pong,
            frames.STATUS: self._on_status,
        }

    # --- transports -------------------------------------------------------------------------------------------

    @property
    def received(self) -> int:
        """Sequence number of the last received frame, for RESUME and RESUMED."""
        return self._receipts.received

    @property
    def unacknowledged(self) -> int:
        """Bytes, frame headers included, that the peer has not acknowledged and that a resume would send again."""
        return self._scheduler.replay.size

    def next_epoch(self) -> int:
        """Return the number for a new attempt to attach a transport."""
        self.epoch += 1
        return self.epoch

    def can_resume(self, peer_received: int) -> bool:
        """Return True if the peer reports only frames that were sent.

        Args:
            peer_received: The last sequence number that the peer reports in RESUME or RESUMED.
        """
        # A number below the last acknowledged one is valid: a client whose last transport still works continues to send
        # ACKs on it after it has created its RESUME.
        return peer_received <= self._scheduler.replay.last_sent

    def attach(self, epoch: int, peer_received: int, now: float) -> None:
        """Use a transport whose handshake has succeeded, instead of the previous one.

        Args:
            epoch: Number of the transport, higher than that of any attached before.
            peer_received: The last frame that the peer has received; `can_resume` must be True for it.
            now: Monotonic seconds.
        """
        if self.attached:
            self._emit(TransportDead(self.transport_epoch, Death.SUPERSEDED, ""))
        if self.transport_epoch:
            self._confirmed = True  # only a client that has received WELCOME can resume
        self.attached, self.transport_epoch = True, epoch
        self.epoch = max(self.epoch, epoch)
        # The previous transport may have ended inside a frame; the peer resends that frame from its start.
        self._decoder = FrameDecoder(self._settings.limits.max_payload)
        self._liveness = Liveness(self._settings, now)
        # Unsequenced frames are lost with their transport: PONGs are obsolete, STATUS and ACK are sent again.
        self._pong = None
        self._status_due = self._status is not None
        self._receipts.make_due()
        # RESUME and RESUMED acknowledge frames like an ACK; only the remaining ones are sent again.
        self._scheduler.attach(peer_received)
        self._check_closed()

    def resume_refused(self, refusal: Refusal, text: str) -> None:
        """Record that the agent refused a RESUME; a final refusal ends the session."""
        if refusal.final:
            # An agent that has processed this side's GOAWAY no longer knows the session, which confirms the end.
            self._finish(OverReason.CLOSED if self._closing else OverReason.REFUSED, text, refusal)

    def transport_lost(self, epoch: int, now: float) -> None:
        """Record that a transport has ended, for any reason; ignored if it is not the attached one."""
        if self._is_attached(epoch):
            self._detach(now)

    def receive_data(self, epoch: int, data: Buffer, now: float) -> None:
        """Process bytes received from a transport; those of an earlier transport are ignored."""
        # After the session has ended, the transport may still deliver frames for its closed streams.
        if self.over or not self._is_attached(epoch):
            return
        self._liveness.data_received(now)
        try:
            for frame in self._decoder.feed(data):
                self._receive(frame, now)
                if self.over:  # the frame was the peer's GOAWAY, or the ACK of this side's
                    return
        except ProtocolBreach as breach:
            self._breached(breach, now)

    @property
    def may_send(self) -> bool:
        """False if `data_to_send` would certainly return nothing, as after most received frames."""
        return bool(
            self._scheduler.has_frames
            or self._receipts.due
            or self._pong is not None
            or self._liveness.ping_due
            or self._status_due
        )

    def data_to_send(self, epoch: int, now: float, limit: int = 64 * KIB) -> list[Buffer]:
        """Return bytes to send on a transport now, most urgent first; each frame is returned once per transport.

        After the end of the session, this is at most the acknowledgement of the peer's GOAWAY.

        Args:
            epoch: Number of the transport; nothing is returned for an old one.
            now: Monotonic seconds.
            limit: Bytes after which no further frame is added. A small value keeps bytes out of the socket's buffer,
                where urgent frames could no longer overtake them.
        """
        if not self._is_attached(epoch):
            return []
        urgent: list[Buffer] = []
        bulk: list[Buffer] = []
        if not self.over:
            # Before data: a PONG or PING behind bulk data would measure the queue and could miss its deadline.
            urgent = self._unsequenced_frames(now)
            self._scheduler.adapt(len(self.streams), self._liveness.round_trip, now)
            bulk = self._scheduler.pull(limit, now)
            for stream in self._scheduler.take_framed():
                self.streams.progressed(stream)
        # An ACK costs no extra packet if other frames are sent anyway.
        if self._receipts.due or (self._receipts.pending and (urgent or bulk)):
            urgent.append(encode_frame(frames.ACK, frames.U64.pack(self._receipts.take())))
        return urgent + bulk

    def events(self) -> list[Event]:
        """Return the events since the last call."""
        happened, self._events = self._events, []
        return happened

    # --- time -------------------------------------------------------------------------------------------------

    def next_deadline(self) -> float | None:
        """Return the time at which to call `tick`; None once the session is over."""
        if self.over:
            return None
        if not self.attached:
            return self.detached_at + self._grace()
        ack = self._receipts.deadline
        return self._liveness.deadline if ack is None else min(self._liveness.deadline, ack)

    def tick(self, now: float) -> None:
        """Check the deadlines of ACKs, of the peer's liveness and of the grace period."""
        if self.over:
            return
        if self.attached:
            self._receipts.tick(now)
            if not self._liveness.check(now):
                self._give_up(Death.SILENCE, "", now)
        elif now >= self.detached_at + self._grace():
            self._finish(OverReason.GRACE_EXPIRED, f"no connection for {self._grace():.0f} s")

    def probe(self, now: float, timeout: float) -> None:
        """Send a PING; the transport is dead if no data is received within `timeout` seconds."""
        self._liveness.probe(now, timeout)

    # --- the owner --------------------------------------------------------------------------------------------

    def send_status(self, status: JsonObject) -> None:
        """Send the current status to the peer; it replaces one that has not been sent yet.

        Raises:
            ValueError: The status is not JSON, or longer than 32 KiB.
        """
        self._status = frames.encode_json(status, MAX_CONTROL_PAYLOAD)
        self._status_due = True

    def close(self, text: str = "") -> None:
        """End the session gracefully: queued data is sent first, then GOAWAY, which the peer acknowledges."""
        if not self.over and not self._closing:
            # Open streams may still send their queued data; no new ones are opened.
            self._closing = self.streams.closed = True
            self._scheduler.queue_goaway(frames.encode_code(0, text))

    def abort(self, text: str = "") -> None:
        """End the session immediately; the peer detects this when it tries to resume."""
        self._finish(OverReason.ABORTED, text)

    # --- received frames --------------------------------------------------------------------------------------

    def _receive(self, frame: Frame, now: float) -> None:
        if frame.seq and not self._receipts.is_next(frame.seq):
            return  # a duplicate: resent after a resume although it had been received
        handler = (self._sequenced if frame.seq else self._unsequenced).get(frame.type)
        if handler is not None:
            handler(frame, now)
        elif not frame.flags & IGNORABLE:  # IGNORABLE marks types of later versions that may be skipped
            raise ProtocolBreach(Breach.UNKNOWN_FRAME, f"type {frame.type:#04x}")
        self._confirmed = True  # a client sends frames only after it has received WELCOME
        if frame.seq:  # after the handler: a frame that raised is not acknowledged and will be resent
            self._receipts.accept(HEADER_SIZE + len(frame.payload), now, shared=len(self.streams) > 1)

    def _on_goaway(self, frame: Frame, _now: float) -> None:
        _, text = frames.decode_code(frame.payload)
        self._receipts.make_due()  # the peer closes its transport only after this ACK
        self._finish(OverReason.PEER_CLOSED, text)

    def _on_ack(self, frame: Frame, now: float) -> None:
        self._scheduler.acknowledged(frames.decode_number(frames.U64, frame.payload), now)
        self._check_closed()  # the ACK of GOAWAY completes close()

    def _on_ping(self, frame: Frame, _now: float) -> None:
        frames.decode_number(frames.U64, frame.payload)
        self._pong = frame.payload  # at most one: a flood of PINGs must not fill the send buffer

    def _on_pong(self, frame: Frame, now: float) -> None:
        seconds = self._liveness.pong(frames.decode_number(frames.U64, frame.payload), now)
        if seconds is not None:
            self._emit(RoundTrip(seconds))

    def _on_status(self, frame: Frame, _now: float) -> None:
        self._emit(StatusReceived(frames.decode_json(frame.payload)))

    # --- consequences -----------------------------------------------------------------------------------------

    def _emit(self, event: Event) -> None:
        self._events.append(event)

    def _unsequenced_frames(self, now: float) -> list[Buffer]:
        out: list[Buffer] = []
        if self._pong is not None:
            out.append(encode_frame(frames.PONG, self._pong))
            self._pong = None
        if self._liveness.ping_due:
            out.append(encode_frame(frames.PING, frames.U64.pack(self._liveness.take_ping(now))))
        if self._status_due and self._status is not None:
            out.append(encode_frame(frames.STATUS, self._status))
            self._status_due = False  # the status itself is kept and sent again on the next transport
        return out

    def _breached(self, breach: ProtocolBreach, now: float) -> None:
        """Drop the transport, and end the session if this has happened repeatedly at the same frame."""
        # Without progress in between, the peer would resend the same frame after each resume, endlessly.
        self._breaches = self._breaches + 1 if self.received == self._breached_at else 1
        self._breached_at = self.received
        # Drop only the transport at first: its bytes may have been corrupted, which a resume repairs.
        self._give_up(Death.BREACH, str(breach), now)
        if self._breaches >= MAX_REPEATED_BREACHES:
            self._finish(OverReason.BREACH, str(breach))

    def _give_up(self, death: Death, text: str, now: float) -> None:
        self._detach(now)
        self._emit(TransportDead(self.transport_epoch, death, text))

    def _detach(self, now: float) -> None:
        self.attached = False
        self.detached_at = now

    def _check_closed(self) -> None:
        if self._scheduler.goaway_acked:
            self._finish(OverReason.CLOSED, "")

    def _finish(self, reason: OverReason, text: str, refusal: Refusal | None = None) -> None:
        if self.over is None:
            self.over = SessionOver(reason, text, refusal)
            self.streams.end()
            self._emit(self.over)

    def _is_attached(self, epoch: int) -> bool:
        return self.attached and epoch == self.transport_epoch

    def _grace(self) -> float:
        # Otherwise each lost WELCOME would occupy one of the agent's sessions for the whole grace period.
        return self.grace if self._confirmed else min(self.grace, UNCONFIRMED_GRACE)
