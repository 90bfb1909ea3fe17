"""Attaches as VS Code does: `python -m tests.bench.attaching PORT SCRIPT LINE COUNT` prints the seconds of each time.

They are counted from the `initialize` request to the `stopped` event at a breakpoint. VS Code sends all requests about
breakpoints at once, and waits for their responses before `configurationDone`. Then the editor leaves.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time

from tests.bench.steps import Editor

PAUSE = 1.0
"""Seconds between an editor's end and the next one: the job is released meanwhile."""


def attach(port: int, script: str, line: int) -> float:
    """Return the seconds until the job has stopped."""
    with contextlib.closing(Editor(port, prompt=False)) as editor:
        started = time.monotonic()
        editor.request("initialize", clientID="vscode", adapterID="debugpy", pathFormat="path")
        attaching = editor.send("attach", justMyCode=False)
        editor.event("initialized")
        breakpoints = [
            editor.send("setBreakpoints", source={"path": script}, breakpoints=[{"line": line}]),
            editor.send("setFunctionBreakpoints", breakpoints=[]),
            editor.send("setExceptionBreakpoints", filters=["uncaught"]),
        ]
        for number in breakpoints:
            editor.answer(number)
        editor.request("configurationDone")
        editor.event("stopped")
        seconds = time.monotonic() - started
        editor.answer(attaching)
        editor.request("disconnect", terminateDebuggee=False)
    return seconds


def main(port: str, script: str, line: str, count: str) -> None:
    """Attach several times, and print the seconds."""
    found = []
    for _ in range(int(count)):
        found.append(attach(int(port), script, int(line)))
        time.sleep(PAUSE)
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
