"""Facts about the signals of a job that the threads and programs of relay-agent receive."""

import signal
import threading
from collections.abc import Iterable
from pathlib import Path

import pytest

from relay_agent.node.in_job.connection import blocked_signals
from relay_agent.stacks.in_process import dump_signals
from tests.support.jobs.processes import run_job
from tests.support.jobs.running import access
from tests.support.network.relay import HC, LocalRelay

START = f"""
import os, signal
from relay_agent.node.in_job.client import NodeClient
from relay_agent.settings.model import DebugSettings
from relay_agent.node.in_job.connection import blocked_signals
from relay_agent.debuggee.debugger import debugger
from tests.support.debuggers.armed import adapter
client = NodeClient(
    {{"hc": {HC!r}}},
    {{"port": 5678, "rank": 0, "pid": os.getpid(), "script": "train.py", "state": "running"}},
    DebugSettings(), answers={{}},
)
client.start()
client.attaching.listening.wait(3600)
"""
WAITS = """
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
for number in range(100):
    os.kill(os.getpid(), signal.SIGUSR1)
    signal.sigwait({signal.SIGUSR1})
print("received", flush=True)
os._exit(0)
"""
MASKS = """
with blocked_signals():
    port = debugger.arm()
for pid in (os.getpid(), client.agent_pid, adapter(port)):
    with open(f"/proc/{pid}/status") as status:
        print(next(line.split()[1] for line in status if line.startswith("SigBlk")), flush=True)
os._exit(0)
"""


def test_threads_started_meanwhile_block_signals() -> None:
    """A thread started in the block receives faults and requests for stacks only; the starting thread receives all."""
    masks = []
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    thread = threading.Thread(target=lambda: masks.append(signal.pthread_sigmask(signal.SIG_BLOCK, ())))
    with blocked_signals():
        thread.start()
    thread.join()
    (mask,) = masks
    assert {signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGCHLD, signal.SIGRTMIN} <= mask
    assert not mask & {signal.SIGSEGV, signal.SIGTRAP, *dump_signals()}
    assert before == signal.pthread_sigmask(signal.SIG_BLOCK, ())


def test_signal_handler_that_raises_while_signals_are_being_blocked(monkeypatch: pytest.MonkeyPatch) -> None:
    """The starting thread receives all signals again; Python calls the handlers at the end of `pthread_sigmask`."""
    set_mask = signal.pthread_sigmask

    def set_mask_with_handler(how: int, signals: Iterable[int]) -> set[int]:
        before = set_mask(how, signals)
        if signals and how == signal.SIG_BLOCK:
            raise KeyboardInterrupt
        return before

    before = set_mask(signal.SIG_BLOCK, ())
    monkeypatch.setattr(signal, "pthread_sigmask", set_mask_with_handler)
    try:
        with pytest.raises(KeyboardInterrupt), blocked_signals():
            pass
        assert before == set_mask(signal.SIG_BLOCK, ())
    finally:
        set_mask(signal.SIG_SETMASK, before)


async def test_job_that_waits_for_a_blocked_signal(relay: LocalRelay, tmp_path: Path) -> None:
    """It receives the signal with `sigwait`; no thread of relay-agent receives the signal and ends the job."""
    status, lines, err = await run_job(START + WAITS, **access(relay, tmp_path, "listen"))
    assert (0, ["received"]) == (status, lines), err


async def test_programs_started_by_the_helper_thread_block_nothing(relay: LocalRelay, tmp_path: Path) -> None:
    """The job's main thread, the agent and debugpy's adapter receive all signals."""
    status, lines, err = await run_job(START + MASKS, **access(relay, tmp_path, "listen"))
    assert (0, ["0" * 16] * 3) == (status, lines), err
