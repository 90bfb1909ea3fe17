"""The streams of a session, and the frames that carry them.

stream     one stream: what waits to be sent, and the credit of both directions
table      which streams exist, and how many each side may open
streams    what the owner of a session does with its streams, and what the peer's frames do to them
scheduler  which frame leaves next: control before data, streams in turn
replay     the frames that the peer has not acknowledged, for the next transport
"""
