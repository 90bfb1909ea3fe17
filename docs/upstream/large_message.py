"""A response of more than 16 MiB ends what the debugger answers."""

from session import Session, answer, conclude

PROGRAM = """\
text = "x" * 20_000_000
print()  # breakpoint
"""

with Session(PROGRAM) as session:
    thread = session.stopped()
    frame = session.request("stackTrace", threadId=thread)["body"]["stackFrames"][0]["id"]
    answer(session, "evaluate", expression="text[:1_000_000]", frameId=frame, context="clipboard")
    answer(session, "evaluate", expression="text", frameId=frame, context="clipboard")
    outcome = answer(session, "threads")
conclude(is_there=outcome == "no response")
