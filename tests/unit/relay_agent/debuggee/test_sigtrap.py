"""Facts about SIGTRAP in a process that is debugged on demand; each has a process of its own."""

import os

import pytest

from tests.support.jobs.processes import run_job

pytestmark = pytest.mark.skipif(os.name != "posix", reason="SIGTRAP is a signal of POSIX systems")

INSTALL = """
    import os, signal, sys, threading
    from relay_agent.debuggee import sigtrap

    def raise_trap():
        os.kill(os.getpid(), signal.SIGTRAP)

    places = []
    def hold(frame):
        places.append(frame.f_code.co_name)
"""


async def test_job_keeps_its_handler():
    """A handler that the job has set is not replaced."""
    code = """
    signal.signal(signal.SIGTRAP, lambda *_: print("mine"))
    print(sigtrap.install(hold)); raise_trap(); print(places)
    """
    assert (0, ["False", "mine", "[]"], "") == await run_job(INSTALL + code)


async def test_every_signal_is_answered():
    """Each signal calls the function with the frame of the program; one that arrives meanwhile is ignored."""
    code = """
    def hold(frame):
        places.append(frame.f_code.co_name)
        raise_trap()
    def train(): raise_trap()
    print(sigtrap.install(hold)); train(); train(); raise_trap(); print(places)
    """
    assert (0, ["True", "['raise_trap', 'raise_trap', 'raise_trap']"], "") == await run_job(INSTALL + code)


async def test_signal_in_code_that_may_hold_a_lock():
    """The signal is answered when the interrupted code of this library has returned."""
    code = """
    from relay_core import errors
    held = threading.Event()
    def hold(frame): held.set()
    sigtrap.install(hold)
    exec(compile("def locked():\\n raise_trap()\\n print(held.is_set())", "errors.py", "exec"), vars(errors))
    errors.raise_trap = raise_trap
    errors.held = held
    errors.locked()
    print(held.wait(3600))
    """
    assert (0, ["False", "True"], "") == await run_job(INSTALL + code)


async def test_handler_that_the_job_sets_before_the_signal_is_sent_again():
    """A signal is sent again only to our handler: the default action would end the job."""
    code = """
    from relay_core import errors
    sigtrap.install(hold)
    exec("def locked():\\n raise_trap()\\n signal.signal(signal.SIGTRAP, signal.SIG_DFL)", vars(errors))
    vars(errors).update(raise_trap=raise_trap, signal=signal)
    errors.locked()
    for timer in threading.enumerate()[1:]: timer.join()
    print(places)
    """
    assert (0, ["[]"], "") == await run_job(INSTALL + code)
