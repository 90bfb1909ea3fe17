"""A request that debugpy does not support, such as `cancel`, silences the debugger."""

from session import Session, answer, conclude

PROGRAM = """\
import time
while True:
    time.sleep(0.1)
"""

with Session(PROGRAM) as session:
    answer(session, "threads")
    answer(session, "cancel", requestId=1)
    outcome = answer(session, "threads")
conclude(is_there=outcome == "no response")
