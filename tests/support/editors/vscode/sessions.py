"""What a test of a debug session starts with: a window, a job that waits for a debugger, and a relay-client."""

import contextlib
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tests.support.editors.vscode.editor import Editor
from tests.support.editors.vscode.jobs import waiting_job
from tests.support.editors.vscode.window import Window
from tests.support.editors.vscode.workspace import BREAKPOINT, SCRIPT, attach
from tests.support.jobs.running import access
from tests.support.machine.ports import free_port
from tests.support.machine.programs import Program, program
from tests.support.network.chaos import ChaosProxy
from tests.support.network.relay import HC, LocalRelay

__all__ = ["Session", "ready_for_f5", "stopped_at_a_breakpoint"]


class Session(NamedTuple):
    """One debug session and the programs that it needs."""

    window: Window
    job: Program
    client: Program
    port: int
    """Of rank 0, on both sides."""


@contextlib.asynccontextmanager
async def ready_for_f5(
    editor: Editor,
    relay: LocalRelay,
    directory: Path,
    *,
    script: str = SCRIPT,
    line: int = BREAKPOINT,
    through: ChaosProxy | None = None,
    variables: Mapping[str, str] | None = None,
    **configuration: Any,
) -> AsyncIterator[Session]:
    """Run a job that waits and a relay-client, and show a window with a breakpoint and a launch configuration "rank 0".

    All three start at the same time, because each takes about a second.

    Args:
        editor: Shows the window.
        relay: Between job and client.
        directory: For the files of both.
        script: Of the project, which the job runs.
        line: Of the breakpoint in it.
        through: A bad network between client and relay.
        variables: More of the environment of job and client.
        configuration: Members of the launch configuration; None removes one.
    """
    port = free_port()
    members = {**attach("rank 0", port), **configuration}
    more = variables or {}
    environment = access(relay, directory, "send", **more)
    if through is not None:
        lead_through(through, relay, Path(environment["RELAY_CONNECTION_STRING_FILE"]))
    async with (
        waiting_job(editor.workspace, relay, directory, port, name=script, **more) as job,
        program("relay_client", "--hc", HC, "--ports", str(port), env=environment) as client,
        editor.window({name: value for name, value in members.items() if value is not None}) as window,
    ):
        await window.breakpoint(line, script)
        await client.line("ready on")
        yield Session(window, job, client, port)


@contextlib.asynccontextmanager
async def stopped_at_a_breakpoint(
    editor: Editor, relay: LocalRelay, directory: Path, **options: Any
) -> AsyncIterator[Session]:
    """Press F5 after `ready_for_f5`; the block begins when the editor shows where the program is stopped."""
    async with ready_for_f5(editor, relay, directory, **options) as session:
        await session.window.press("F5")
        await session.window.until_stopped()
        yield session


def lead_through(chaos: ChaosProxy, relay: LocalRelay, file: Path) -> None:
    """Replace the relay's port in a connection string file."""
    file.write_text(file.read_text().replace(f":{relay.server.port};", f":{chaos.port};"))
