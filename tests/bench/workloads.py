"""A job that works on request: `python -m tests.bench.workloads WORK PREPARATION PORT CONNECTION_FILE CA_FILE`.

It prints "ready", after the port of its debugger if it has one. Then it answers each line of its stdin with
a line of JSON: a number, which is how often to do its work, with the seconds that this took; "state" with what a
debugger has left in the process.

The function that works never returns, so a debugger comes and goes while it runs, as it does in a real training loop.
Nothing of this project and no debugger is imported unless the preparation does it.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter, sleep

__all__ = ["ABSENT", "ATTACHED", "ELSEWHERE", "LISTENING", "PREPARATIONS", "RELEASED", "SCRIPT", "WORKS"]

SCRIPT = Path(__file__)
ELSEWHERE = "return number + 1"
"""The line for a breakpoint that is never reached, in a function of this file that is never called."""
HC = "bench"
WINDOW = 0.1
"""Seconds for which a loop in another thread is measured."""

ABSENT, LISTENING, ATTACHED, RELEASED = "debugpy is not imported", "debugpy listens", "attached", "released"
"""What a process can say of its state."""


# The work:


def tight_loop() -> None:
    """One comparison and one addition each time."""
    for times in orders():
        started = perf_counter()
        number = 0
        while number < times:
            number += 1
        answer(perf_counter() - started)


def tiny_calls() -> None:
    """One call of a function that does next to nothing each time."""
    for times in orders():
        started = perf_counter()
        for number in range(times):
            tiny(number)
        answer(perf_counter() - started)


def tiny(number: int) -> int:
    """Return early."""
    return number


def elsewhere(number: int) -> int:
    """Nobody calls this."""
    return number + 1


def torch_steps() -> None:
    """Forward, backward and optimizer of a small network each time, on one core."""
    torch = sys.modules["torch"]
    torch.manual_seed(0)
    torch.set_num_threads(1)
    layers = [torch.nn.Linear(128, 128), torch.nn.ReLU(), torch.nn.Linear(128, 128), torch.nn.ReLU()]
    model = torch.nn.Sequential(*layers, torch.nn.Linear(128, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    inputs, wanted = torch.randn(64, 128), torch.randint(0, 10, (64,))
    for times in orders():
        started = perf_counter()
        for _ in range(times):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(inputs), wanted)
            loss.backward()
            optimizer.step()
        answer(perf_counter() - started)


def without_calls() -> None:
    """One addition each time, in a loop that makes no call: another thread takes the orders."""
    passes = [0]
    threading.Thread(target=measure, args=[passes], daemon=True).start()
    while True:
        passes[0] += 1


def measure(passes: list[int]) -> None:
    """Answer each order with how long the loop of another thread takes for so many passes."""
    for times in orders():
        before, started = passes[0], perf_counter()
        sleep(WINDOW)
        found, ended = passes[0], perf_counter()
        answer((ended - started) * times / (found - before))
    os._exit(0)


WORKS = {each.__name__: each for each in (tight_loop, tiny_calls, torch_steps, without_calls)}


# What the job does about debugging before it works:


def nothing() -> None:
    """It knows nothing of debugging."""


def no_debug_run() -> None:
    """It calls us, and its command line does not ask for debugging."""
    import relay_agent

    relay_agent.start_remote_debugging_from_args([])


def on_demand() -> None:
    """It can be attached to through the relay at any time, and its agent listens."""
    import relay_agent
    from relay_agent.debuggee import process

    port, file, ca_file = sys.argv[3:6]
    relay_agent.start_remote_debugging(HC, int(port), wait=0, connection_string_file=file, ca_file=ca_file)
    process = process.current()
    assert process is not None
    assert process.node_client.attaching.listening.wait(30)


def debug_run() -> None:
    """Its command line asks for debugging, and no rank waits: all can be attached to."""
    import relay_agent

    port, file, ca_file = sys.argv[3:6]
    where = ["--debug-relay-connection-name", HC, "--debug-port", port]
    os.environ |= {"RELAY_CONNECTION_STRING_FILE": file, "RELAY_CA_FILE": ca_file}
    relay_agent.start_remote_debugging_from_args(["--is-debug", "true", "--debug-ranks", "none", *where])


def arm() -> None:
    """Its debugger is started, as it is when somebody attaches."""
    from relay_agent.debuggee.debugger import debugger

    answer(debugger.arm())


def debugpy_listen() -> None:
    """It calls debugpy itself."""
    import debugpy

    debugpy.listen(("127.0.0.1", 0))


PREPARATIONS = {each.__name__: each for each in (nothing, no_debug_run, debug_run, on_demand, arm, debugpy_listen)}


# Orders and answers:


def orders() -> Iterator[int]:
    """Yield how often to do the work, until stdin ends."""
    answer("ready")
    for line in sys.stdin:
        if line.strip() == "state":
            answer(state())
        else:
            yield int(line)


def answer(value: object) -> None:
    """Print a line."""
    print(json.dumps(value), flush=True)


def state() -> str:
    """Return what a debugger has left here."""
    if "debugpy" not in sys.modules:
        return ABSENT
    if sys.modules["pydevd"].get_global_debugger().is_attached():
        return ATTACHED
    module = sys.modules.get("relay_agent.debuggee.debugger")
    return LISTENING if module is None or module.debugger.is_armed() else RELEASED


if __name__ == "__main__":
    if sys.argv[1] == torch_steps.__name__:
        # At the top of a real job, before it does anything about debugging; optimizers would import the second.
        import torch
        import torch._dynamo  # noqa: F401
    PREPARATIONS[sys.argv[2]]()
    WORKS[sys.argv[1]]()
