"""A step takes 0.2 s longer if the process has several threads."""

import statistics
import time

from session import Session, conclude

PROGRAM = """\
import threading
import time

def work():
    while True:
        time.sleep(0.001)

for _ in range({threads}):
    threading.Thread(target=work, daemon=True).start()
number = 0  # breakpoint
while True:
    number += 1
"""


def milliseconds(threads: int) -> float:
    """Return how long a step takes on average in a process with further threads."""
    taken = []
    with Session(PROGRAM.format(threads=threads)) as session:
        thread = session.stopped()
        for _ in range(20):
            start = time.perf_counter()
            session.request("next", threadId=thread)
            session.stopped()
            taken.append(1000 * (time.perf_counter() - start))
    return statistics.mean(taken)


alone, many = milliseconds(0), milliseconds(4)
print(f"step: {alone:.0f} ms; with four more threads: {many:.0f} ms")
conclude(is_there=many > alone + 20)
