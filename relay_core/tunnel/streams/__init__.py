"""The streams of a session, and the order and retransmission of their frames.

stream     one stream: its send queue, and the credit of both directions
table      the live streams, their numbers, and the limits on opening them
streams    operations of the session's owner on streams, and handlers of the peer's frames
scheduler  the next frame to send: control before data, streams in round-robin order
replay     unacknowledged frames, which are sent again on the next transport
"""
