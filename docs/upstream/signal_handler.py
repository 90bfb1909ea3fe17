"""After a signal handler has raised an exception during a stop, other threads stay stopped."""

import os
import signal

from session import SILENCE, Session, conclude

PROGRAM = """\
import signal
import threading
import time

ticks = 0

def tick():
    global ticks
    while True:
        ticks += 1
        time.sleep(0.001)

def interrupt(*_):
    raise TimeoutError

def train():
    time.sleep(0)  # breakpoint

signal.signal(signal.SIGALRM, interrupt)
threading.Thread(target=tick, daemon=True).start()
try:
    train()
except TimeoutError:
    before = ticks
    time.sleep(2)
    print(ticks - before, flush=True)
while True:
    train()
    time.sleep(0.01)
"""

with Session(PROGRAM) as session:
    session.stopped()
    os.kill(session.job.pid, signal.SIGALRM)
    session.event("continued")
    ticks = int(session.job.stdout.readline())
    print(f"ticks of the other thread in 2 s after `continued`: {ticks}")
    try:
        session.event("stopped", SILENCE)
        print("the main thread stops at the breakpoint")
    except TimeoutError:
        print("the main thread passes the breakpoint")
conclude(is_there=ticks == 0)
