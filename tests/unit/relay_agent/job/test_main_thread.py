"""Facts about calls that are scheduled in the main thread."""

from tests.support.jobs.processes import run_job

TRACED = """
    import sys
    from relay_agent.debuggee.unreached.breakpoints import _pending_call
    from relay_agent.job.main_thread import call_in_main_thread

    called, tracers, kept = [], [], []

    def first():
        kept.append(_pending_call(tracers))
        append("first")

    def append(name):
        called.append(name)

    def trace(frame, event, arg):
        return None

    sys.settrace(trace)
    call_in_main_thread(first)
    while not tracers:
        pass
    print(*called, tracers == [trace])
"""
FULL = """
    import gc, threading
    from relay_agent.job.main_thread import add_pending_call

    called, accepted, filled = [], [], threading.Lock()

    def fill():
        for number in range(500):
            if add_pending_call(lambda number=number: called.append(number)):
                accepted.append(number)
        gc.collect()
        filled.release()

    filled.acquire()
    threading.Thread(target=fill).start()
    filled.acquire()  # in C code: the main thread executes no pending call meanwhile
    while len(called) < len(accepted):
        pass
    print(called == accepted, 0 < len(accepted) <= 64)
"""
SIGNAL = """
    import signal, threading, time
    from relay_agent.job.main_thread import call_in_main_thread

    class Stop(Exception): ...

    def handler(*_):
        raise Stop

    def interrupted():
        signal.raise_signal(signal.SIGTERM)
        for _ in range(100):
            pass

    signal.signal(signal.SIGTERM, handler)
    threading.Timer(0.1, call_in_main_thread, [interrupted]).start()
    try:
        while True:
            time.sleep(0.001)
    except Stop:
        print("raised")
"""


async def test_check_for_tracers_during_a_call() -> None:
    """A call completes although a check of the trace function is scheduled meanwhile, and the function stays."""
    assert (0, ["first True"], "") == await run_job(TRACED)


async def test_more_calls_than_python_accepts() -> None:
    """While the main thread executes C code, further calls are refused, and the accepted ones are executed later."""
    assert (0, ["True True"], "") == await run_job(FULL)


async def test_exception_of_a_signal_handler() -> None:
    """What a signal handler of the job raises while a call is being executed is raised in the job's code."""
    assert (0, ["raised"], "") == await run_job(SIGNAL)
