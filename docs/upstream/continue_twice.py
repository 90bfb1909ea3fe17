"""A `continue` that arrives while no thread is stopped silences the debugger."""

from session import Session, answer, conclude

PROGRAM = """\
import time
time.sleep(0)  # breakpoint
while True:
    time.sleep(0.1)
"""

with Session(PROGRAM) as session:
    thread = session.stopped()
    answer(session, "continue", threadId=thread)
    answer(session, "continue", threadId=thread)
    outcome = answer(session, "threads")
conclude(is_there=outcome == "no response")
