"""Facts about calls that a push schedules in the main thread."""

from tests.support.jobs.processes import run_job

CODE = """
    import sys
    from relay_agent.debuggee.unreached.breakpoints import _pending_call
    from relay_agent.push.in_process import call_in_main_thread

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


async def test_check_for_tracers_during_a_push() -> None:
    """A call completes although a check of the trace function is scheduled meanwhile, and the function stays."""
    assert (0, ["first True"], "") == await run_job(CODE)
