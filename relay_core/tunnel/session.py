"""A session: what client and agent share for as long as either of them wants it, over any number of transports.

                  attach(epoch)                 GOAWAY, grace expired, refused, abort()
    DETACHED <------------------> ATTACHED   ----------------------------------------------> OVER
              lost, dead, breach     | attach(epoch + n): the old transport is superseded
                                     +---+

Transports are told apart by their epoch: whatever an older one still delivers, or its end, changes nothing. Every
call may cause events and frames, so a driver does the same after each: hand out `events()`, then send what
`data_to_send()` returns, then arm a timer for `next_deadline()`. Nothing here waits: received frames are taken at once,
their bytes are bounded by the credit of their stream, and the owner holds them until they are consumed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from relay_core.errors import ConnectionLost
from relay_core.tunnel import events as ev
from relay_core.tunnel import frames, messages
from relay_core.tunnel.frames import HEADER_SIZE, IGNORABLE, Buffer, Frame, FrameDecoder, encode_frame
from relay_core.tunnel.limits import (
    KIB,
    MAX_CONTROL_PAYLOAD,
    MAX_REPEATED_BREACHES,
    MAX_U31,
    UNCONFIRMED_GRACE,
    Settings,
)
from relay_core.tunnel.liveness import Liveness
from relay_core.tunnel.messages import Greeting, JsonObject, Target
from relay_core.tunnel.outcomes import (
    Breach,
    Death,
    OverReason,
    ProtocolBreach,
    Refusal,
    ResetCode,
    Role,
    StreamLimitReached,
)
from relay_core.tunnel.replay import Receipts
from relay_core.tunnel.scheduler import Scheduler
from relay_core.tunnel.stream import Stream
from relay_core.tunnel.streams import StreamTable

__all__ = ["Session"]


class Session:
    """One side of a session; `ClientHandshake` and `SessionTable` make them.

    Args:
        role: Which side.
        session_id: 16 bytes, chosen by the agent.
        secret: 32 bytes, chosen by the agent.
        settings: Limits and timers of this side.
        peer: What the other side said about itself.
        now: Monotonic seconds.
    """

    def __init__(
        self, role: Role, *, session_id: bytes, secret: bytes, settings: Settings, peer: Greeting, now: float
    ) -> None:
        self.role = role
        self.id = session_id
        self.secret = secret
        self.peer = peer
        self.epoch = 0
        """The newest transport, attached or lost; on a client, the newest attempt."""
        self.attached = False
        self.over: ev.SessionOver | None = None
        self.grace = settings.grace
        """Seconds that the session survives without a transport; the owner may change it at any time."""
        self.counters: Counter[Breach | ResetCode] = Counter()
        """What was refused to the peer."""
        self._settings = settings
        self._transport = 0
        """Epoch of the transport that is or was attached last."""
        self._decoder = FrameDecoder(settings.limits.max_payload)
        self._liveness = self._new_liveness(now)
        self._scheduler = Scheduler(settings, peer.limits.max_payload)
        self._receipts = Receipts(
            max_bytes=settings.ack_bytes, max_frames=settings.ack_frames, delay=settings.ack_delay
        )
        self._streams = StreamTable(
            role, local=settings.limits, peer=peer.limits, queue_limit=settings.send_queue, now=now
        )
        self._events: list[ev.Event] = []
        self._detached_at = now
        self._confirmed = role is Role.CLIENT
        """The client is known to know of the session."""
        self._closing = False
        self._pong: int | None = None
        self._status: bytes | None = None
        self._status_due = False
        self._breaches = 0
        self._breached_at = 0
        self._sequenced: dict[int, Callable[[Frame, float], None]] = {
            frames.DATA: self._on_data,
            frames.WINDOW: self._on_window,
            frames.OPEN: self._on_open,
            frames.OPEN_OK: self._on_open_ok,
            frames.FIN: self._on_fin,
            frames.RST: self._on_rst,
            frames.GOAWAY: self._on_goaway,
        }
        self._unsequenced: dict[int, Callable[[Frame, float], None]] = {
            frames.ACK: self._on_ack,
            frames.PING: self._on_ping,
            frames.PONG: self._on_pong,
            frames.STATUS: self._on_status,
        }

    def __repr__(self) -> str:
        state = self.over.reason.name.lower() if self.over else "attached" if self.attached else "detached"
        return (
            f"<Session {self.role.value} {self.id.hex()[:8]} {state} epoch={self.epoch} streams={len(self._streams)} "
            f"received={self._receipts.received} {self._scheduler.replay!r}>"
        )

    # --- transports -------------------------------------------------------------------------------------------

    @property
    def received(self) -> int:
        """Sequence number of the last frame received, as RESUME and RESUMED report it."""
        return self._receipts.received

    def next_epoch(self) -> int:
        """Number a new attempt to attach."""
        self.epoch += 1
        return self.epoch

    def can_resume(self, peer_received: int) -> bool:
        """Whether every frame after `peer_received` is still here.

        A client that attaches its next transport while the last one works may have acknowledged more there than its
        RESUME says, so only a claim to frames that were never sent is a gap.
        """
        return peer_received <= self._scheduler.replay.last_sent

    def attach(self, epoch: int, peer_received: int, now: float) -> None:
        """Use a transport whose handshake has succeeded, and leave the one before.

        Args:
            epoch: Its number, higher than any attached before.
            peer_received: The last frame that the peer has, for which `can_resume` holds.
            now: Monotonic seconds.
        """
        first = self._transport == 0
        if self.attached:
            self._events.append(ev.TransportDead(self._transport, Death.SUPERSEDED, ""))
        self._transport, self.attached = epoch, True
        self.epoch = max(self.epoch, epoch)
        self._decoder = FrameDecoder(self._settings.limits.max_payload)
        self._liveness = self._new_liveness(now)
        self._pong = None
        self._status_due = self._status is not None
        self._receipts.hurry()  # what was acknowledged on an overtaken transport may not have arrived
        self._scheduler.replay.ack(peer_received)
        self._scheduler.replay.rewind()
        if not first:
            self._events.append(ev.Resumed(epoch))
        self._check_goodbye()

    def resume_refused(self, refusal: Refusal, text: str) -> None:
        """The agent said no; a final refusal ends the session."""
        if refusal.final:
            self._finish(OverReason.CLOSED if self._closing else OverReason.REFUSED, text, refusal)

    def transport_lost(self, epoch: int, now: float) -> None:
        """A transport has ended, for any reason; only the attached one matters."""
        if self._is_current(epoch):
            self._detach(now)

    def receive_data(self, epoch: int, data: Buffer, now: float) -> None:
        """Take bytes that a transport delivered."""
        if not self._is_current(epoch) or self.over:
            return
        self._liveness.heard(now)
        try:
            for frame in self._decoder.feed(data):
                self._receive(frame, now)
                if self.over:
                    return
        except ProtocolBreach as breach:
            self._breached(breach, now)

    def data_to_send(self, epoch: int, now: float, limit: int = 64 * KIB) -> list[Buffer]:
        """Return what should leave on a transport now, most urgent first.

        Args:
            epoch: Number of the transport; an old one gets nothing.
            now: Monotonic seconds.
            limit: Bytes after which no further frame is added.
        """
        if not self._is_current(epoch):
            return []
        urgent: list[Buffer] = [] if self.over else self._urgent(now)
        bulk = [] if self.over else self._scheduler.pull(limit)
        if self._receipts.due or (self._receipts.pending and (urgent or bulk)):
            urgent.append(encode_frame(frames.ACK, messages.encode_u64(self._receipts.take())))
        for stream in self._scheduler.framed:
            self._progressed(stream)
        self._scheduler.framed.clear()
        return urgent + bulk

    def events(self) -> list[ev.Event]:
        """Return what happened since the last call."""
        happened, self._events = self._events, []
        return happened

    # --- time -------------------------------------------------------------------------------------------------

    def next_deadline(self) -> float | None:
        """Return when to call `tick`; None once the session is over."""
        if self.over:
            return None
        if not self.attached:
            return self._detached_at + self._grace()
        ack = self._receipts.deadline
        return self._liveness.deadline if ack is None else min(self._liveness.deadline, ack)

    def tick(self, now: float) -> None:
        """Do what has become due."""
        if self.over:
            return
        if not self.attached:
            if now >= self._detached_at + self._grace():
                self._finish(OverReason.GRACE_EXPIRED, f"no transport for {self._grace():.0f} s")
            return
        self._receipts.tick(now)
        if not self._liveness.check(now):
            self._give_up(Death.SILENCE, "", now)

    def probe(self, now: float, timeout: float) -> None:
        """Ask the peer for a sign of life; the transport is dead if none comes within `timeout` seconds."""
        self._liveness.probe(now, timeout)

    # --- streams ----------------------------------------------------------------------------------------------

    def open(self, target: Target, metadata: JsonObject | None = None) -> int:
        """Open a stream; bytes may be sent before the peer has accepted it.

        Args:
            target: Logical port or name.
            metadata: Who opens it and why, at most 4 KiB of JSON.

        Raises:
            StreamLimitReached: too many are open.
            ConnectionLost: the session is over or closing.
            ValueError: target or metadata cannot be sent.
        """
        payload = messages.encode_open(target, metadata or {})
        if self.over or self._closing:
            raise ConnectionLost("the session is over")
        if self._scheduler.crowded:
            raise StreamLimitReached("the other side acknowledges nothing")
        stream = self._streams.open()
        self._scheduler.add_control(frames.OPEN, stream.id, payload)
        return stream.id

    def accept(self, stream_id: int) -> None:
        """Accept a stream that the peer opened; no effect on one that is gone."""
        stream = self._streams.find(stream_id)
        if stream is not None and stream.incoming and not stream.accepted:
            stream.accepted = True
            self._scheduler.add_control(frames.OPEN_OK, stream_id)

    def refuse(self, stream_id: int, code: ResetCode, text: str = "") -> None:
        """Refuse a stream that the peer opened, and count it; no effect on one that is gone."""
        if self._streams.find(stream_id) is not None:
            self.counters[code] += 1
            self.reset(stream_id, code, text)

    def send(self, stream_id: int, data: bytes | memoryview) -> int:
        """Hand over bytes and return how many were taken; for the rest, wait for `StreamWritable`.

        Args:
            stream_id: The stream.
            data: Kept without a copy, so it must not change.

        Raises:
            ConnectionLost: the stream is gone, or its sending direction has ended.
        """
        stream = self._sendable(stream_id)
        taken = stream.write(data)
        self._scheduler.schedule(stream)
        return taken

    def send_eof(self, stream_id: int) -> None:
        """End the sending direction once what was handed over has left.

        Raises:
            ConnectionLost: the stream is gone, or its sending direction has ended.
        """
        stream = self._sendable(stream_id)
        stream.eof_queued = True
        self._scheduler.schedule(stream)

    def reset(self, stream_id: int, code: ResetCode, text: str = "") -> None:
        """End both directions at once and drop what waits; no effect on a stream that is gone."""
        stream = self._streams.find(stream_id)
        if stream is not None:
            self._forget(stream)
            self._scheduler.add_control(frames.RST, stream_id, messages.encode_code(code, text))

    def consumed(self, stream_id: int, size: int) -> None:
        """The consumer has passed on `size` received bytes; no effect on a stream that is gone.

        Raises:
            ValueError: more than was received.
        """
        stream = self._streams.find(stream_id)
        if stream is not None:
            credit = stream.consumed(size)
            if credit:
                self._scheduler.add_credit(stream_id, credit)

    def send_status(self, status: JsonObject) -> None:
        """Tell the peer the present status; a newer one replaces one that has not left.

        Raises:
            ValueError: it is no JSON or longer than 32 KiB.
        """
        self._status = messages.encode_json(status, MAX_CONTROL_PAYLOAD)
        self._status_due = True

    def close(self, text: str = "") -> None:
        """End the session in order: what was handed over leaves first, and the peer confirms."""
        if not self.over and not self._closing:
            self._closing = True
            self._scheduler.say_goodbye(messages.encode_code(0, text))

    def abort(self, text: str = "") -> None:
        """End the session at once; the peer finds out when it resumes."""
        self._finish(OverReason.ABORTED, text)

    # --- received frames --------------------------------------------------------------------------------------

    def _receive(self, frame: Frame, now: float) -> None:
        if frame.seq:
            if not self._receipts.is_next(frame.seq):
                return
            handler = self._sequenced.get(frame.type)
        else:
            handler = self._unsequenced.get(frame.type)
        if handler is not None:
            handler(frame, now)
        elif not frame.flags & IGNORABLE:
            raise ProtocolBreach(Breach.UNKNOWN_FRAME, f"type {frame.type:#04x}")
        self._confirmed = True
        if frame.seq:  # only now: what could not be handled was not received
            self._receipts.accept(HEADER_SIZE + len(frame.payload), now)

    def _on_data(self, frame: Frame, now: float) -> None:
        stream = self._streams.get(frame.stream)
        if stream is None or not frame.payload:
            return
        if stream.eof_received:
            self._fault(stream, ResetCode.PROTOCOL, "data after the end")
        elif not stream.receive(len(frame.payload)):
            self._fault(stream, ResetCode.FLOW_CONTROL, "more data than credit")
        else:
            self._events.append(ev.DataReceived(stream.id, frame.payload))

    def _on_window(self, frame: Frame, now: float) -> None:
        stream = self._streams.get(frame.stream)
        if stream is None:
            return
        stream.credit += messages.decode_u32(frame.payload)
        if stream.credit > MAX_U31:
            self._fault(stream, ResetCode.FLOW_CONTROL, "more credit than can be counted")
        else:
            self._progressed(stream)

    def _on_open(self, frame: Frame, now: float) -> None:
        target, metadata = messages.decode_open(frame.payload)
        if self._scheduler.crowded:
            raise ProtocolBreach(Breach.FLOOD)
        stream = self._streams.admit(frame.stream, now)
        if stream is None:
            self.counters[ResetCode.LIMIT] += 1
            refusal = messages.encode_code(ResetCode.LIMIT, "too many connections at once")
            self._scheduler.add_control(frames.RST, frame.stream, refusal)
        elif self._closing:
            self.refuse(stream.id, ResetCode.GONE, "the session is closing")
        else:
            self._events.append(ev.StreamOpened(stream.id, target, metadata))

    def _on_open_ok(self, frame: Frame, now: float) -> None:
        stream = self._streams.get(frame.stream)
        if stream is None:
            return
        if stream.incoming or stream.accepted:
            self._fault(stream, ResetCode.PROTOCOL, "accepted what was not asked")
        else:
            stream.accepted = True
            self._events.append(ev.StreamAccepted(stream.id))

    def _on_fin(self, frame: Frame, now: float) -> None:
        stream = self._streams.get(frame.stream)
        if stream is None:
            return
        if stream.eof_received:
            self._fault(stream, ResetCode.PROTOCOL, "ended twice")
            return
        stream.eof_received = True
        self._events.append(ev.EofReceived(stream.id))
        self._progressed(stream)

    def _on_rst(self, frame: Frame, now: float) -> None:
        stream = self._streams.get(frame.stream)
        code, text = messages.decode_reset(frame.payload)
        if stream is not None:
            self._forget(stream)
            self._events.append(ev.StreamReset(stream.id, code, text))

    def _on_goaway(self, frame: Frame, now: float) -> None:
        _, text = messages.decode_code(frame.payload)
        self._receipts.hurry()  # the peer waits for it
        self._finish(OverReason.PEER_CLOSED, text)

    def _on_ack(self, frame: Frame, now: float) -> None:
        self._scheduler.replay.ack(messages.decode_u64(frame.payload))
        self._check_goodbye()

    def _on_ping(self, frame: Frame, now: float) -> None:
        self._pong = messages.decode_u64(frame.payload)

    def _on_pong(self, frame: Frame, now: float) -> None:
        seconds = self._liveness.pong(messages.decode_u64(frame.payload), now)
        if seconds is not None:
            self._events.append(ev.RoundTrip(seconds))

    def _on_status(self, frame: Frame, now: float) -> None:
        self._events.append(ev.StatusReceived(messages.decode_json(frame.payload)))

    # --- consequences -----------------------------------------------------------------------------------------

    def _urgent(self, now: float) -> list[Buffer]:
        out: list[Buffer] = []
        if self._pong is not None:
            out.append(encode_frame(frames.PONG, messages.encode_u64(self._pong)))
            self._pong = None
        if self._liveness.ping_due:
            out.append(encode_frame(frames.PING, messages.encode_u64(self._liveness.take_ping(now))))
        if self._status_due and self._status is not None:
            out.append(encode_frame(frames.STATUS, self._status))
            self._status_due = False
        return out

    def _progressed(self, stream: Stream) -> None:
        if stream.finished:
            self._forget(stream)
        elif stream.unblocked():
            self._events.append(ev.StreamWritable(stream.id))

    def _fault(self, stream: Stream, code: ResetCode, text: str) -> None:
        """The peer broke the rules of one stream: it loses that stream and nothing else."""
        self.counters[code] += 1
        self.reset(stream.id, code, text)
        self._events.append(ev.StreamReset(stream.id, code, text))

    def _forget(self, stream: Stream) -> None:
        self._scheduler.drop(stream)
        self._streams.remove(stream)

    def _breached(self, breach: ProtocolBreach, now: float) -> None:
        self.counters[breach.breach] += 1
        progress = self._receipts.received > self._breached_at
        self._breaches = 1 if progress else self._breaches + 1
        self._breached_at = self._receipts.received
        self._give_up(Death.BREACH, str(breach), now)
        if self._breaches >= MAX_REPEATED_BREACHES:
            self._finish(OverReason.BREACH, str(breach))

    def _give_up(self, death: Death, text: str, now: float) -> None:
        self._detach(now)
        self._events.append(ev.TransportDead(self._transport, death, text))

    def _detach(self, now: float) -> None:
        self.attached = False
        self._detached_at = now

    def _check_goodbye(self) -> None:
        if self._scheduler.goodbye_acked:
            self._finish(OverReason.CLOSED, "")

    def _finish(self, reason: OverReason, text: str, refusal: Refusal | None = None) -> None:
        if self.over is None:
            self.over = ev.SessionOver(reason, text, refusal)
            for stream in self._streams.clear():
                self._scheduler.drop(stream)
            self._events.append(self.over)

    def _sendable(self, stream_id: int) -> Stream:
        stream = self._streams.find(stream_id)
        if stream is None or stream.eof_queued:
            raise ConnectionLost("the stream has ended")
        return stream

    def _is_current(self, epoch: int) -> bool:
        return self.attached and epoch == self._transport

    def _grace(self) -> float:
        return self.grace if self._confirmed else min(self.grace, UNCONFIRMED_GRACE)

    def _new_liveness(self, now: float) -> Liveness:
        return Liveness(ping_after=self._settings.ping_after, dead_after=self._settings.dead_after, now=now)
