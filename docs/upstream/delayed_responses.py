"""Each response takes 40 ms longer than it needs, because pydevd sends it in two parts, with Nagle's algorithm on."""

import statistics
import time

from session import Session, conclude

PROGRAM = """\
import time
while True:
    time.sleep(0.1)  # breakpoint
"""
CHANGE = "__import__('pydevd').get_global_debugger().writer.sock.setsockopt(6, 1, 1)"
"""Sets TCP_NODELAY (1) of IPPROTO_TCP (6)."""


def milliseconds(session: Session, frame: int) -> float:
    """Return how long a response usually takes."""
    taken = []
    for _ in range(50):
        start = time.perf_counter()
        session.request("evaluate", expression="1", frameId=frame)
        taken.append(1000 * (time.perf_counter() - start))
    return statistics.median(taken)


with Session(PROGRAM) as session:
    thread = session.stopped()
    frame = session.request("stackTrace", threadId=thread)["body"]["stackFrames"][0]["id"]
    before = milliseconds(session, frame)
    session.request("evaluate", expression=CHANGE, frameId=frame)
    after = milliseconds(session, frame)
print(f"evaluate: {before:.1f} ms; with TCP_NODELAY: {after:.1f} ms")
conclude(is_there=before > 2 * after)
