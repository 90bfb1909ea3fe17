"""What the commands work on: a session, its breakpoints, the job's source, and the screen."""

from __future__ import annotations

import contextlib
import functools
import posixpath

from relay_client.dap.client import DapClient, RequestFailed
from relay_client.pdb.breakpoints import Breakpoints, parse_wanted
from relay_client.pdb.child_processes import Connect, let_go
from relay_client.pdb.screen import Screen
from relay_client.pdb.session import Frame, NotStopped, Session
from relay_client.pdb.source import Source
from relay_core.errors import RelayDebugError, UsageError

__all__ = ["PAUSE_PATIENCE", "Debugger"]

PAUSE_PATIENCE = 2.0
"""Seconds for a pause: Python code stops within milliseconds, and a tunnel adds its round trips."""
CRASH_PATIENCE = 15.0
"""Seconds for a held crash to show itself; the process that is held looks for its debugger now and then."""

MAX_OWN_STEPS = 8
"""Lines that are not hidden, between what waits for a debugger and the job's own code; there should be none."""

_IS_IN_OWN_CODE = (
    "any('/relay_agent/' in file and '/pydevd_patches/' not in file and '/prefetch/' not in file for file in"
    " (frame.f_code.co_filename for frame, _ in __import__('traceback').walk_stack(None)))"
)
"""Our patches of pydevd, and prefetching, may be what evaluates this expression: their frames do not count."""
_FIND_MODULE = (
    "next((m.__file__ for m in list(__import__('sys').modules.values())"
    " if (getattr(m, '__file__', None) or '').endswith({suffix!r})), '')"
)
_FIND_FUNCTION = (
    "(lambda code: (code.co_filename, min((line for *_, line in code.co_lines() if line and line >"
    " code.co_firstlineno), default=code.co_firstlineno)))"
    "((lambda f: __import__('inspect').unwrap(getattr(f, '__func__', f)))({function}).__code__)"
)
"""The file of a function, and the first line of its body."""


class Debugger:
    """One debug session at a prompt; an async context manager.

    Args:
        client: Connected, and not yet attached.
        connect: Opens another connection to the same adapter.
        screen: Where everything is shown.
        cwd: The job's working directory, which names of files may be relative to; "" if it is not known.
    """

    def __init__(self, client: DapClient, connect: Connect, screen: Screen, *, cwd: str = "") -> None:
        self.screen = screen
        self.session = Session(client, screen.show_output, self.arrive, functools.partial(let_go, connect))
        self.breakpoints = Breakpoints(self.session)
        self.source = Source(self.session.value)
        self.listed = 0
        """The last line that `list` has shown; 0 after every move."""
        self.left = False
        """Whether the user wants to leave."""
        self._cwd = cwd

    def __repr__(self) -> str:
        return f"<Debugger {self.session!r}>"

    async def __aenter__(self) -> Debugger:
        await self.session.__aenter__()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.session.__aexit__(*exc_info)

    async def begin(self, *, stop: bool, crashed: bool, breakpoints: list[str]) -> None:
        """Attach, and show where the job stands; without `stop`, when it comes to a breakpoint.

        Args:
            stop: Pause it.
            crashed: It is held at an exception, and shows it by itself.
            breakpoints: Arguments of the command `break`, with file and line.

        Raises:
            UsageError: a breakpoint is not understood.
            RelayDebugError: the job cannot be attached to.
        """
        for text in breakpoints:
            wanted = parse_wanted(text)
            if not wanted.line or not wanted.file:
                raise UsageError(f"the breakpoint '{text}' is not understood", hint="write it as train.py:12")
            self.breakpoints.note(self._from_cwd(wanted.file), wanted.line, wanted.condition)
        paths = self.breakpoints.by_path()
        wanted_by_path = {path: [one.as_dap() for one in here] for path, here in paths.items()}
        taken = await self.session.attach(wanted_by_path, pause=stop and not crashed)
        for path, here in paths.items():
            for one, answer in zip(here, taken[path], strict=False):
                one.take(answer)
                self.screen.show(str(one))
        if crashed and not await self.session.wait(CRASH_PATIENCE):
            self.screen.show("the exception has not shown itself; pausing instead")
            await self.session.halt(PAUSE_PATIENCE)
        stands = await self.session.wait(PAUSE_PATIENCE if stop or crashed else None)
        if stands and await self._leave_own_code():
            await self.arrive()
        else:
            await self.show_busy()

    async def _leave_own_code(self) -> bool:
        """Let a job that has waited for its debugger return from that wait; False if it does not."""
        for _ in range(MAX_OWN_STEPS):
            if self.session.over or not await self._stands_in_own_code():
                break
            if not await self.session.resume("stepIn", PAUSE_PATIENCE):  # to the next line that is not hidden
                return False
        return True

    async def _stands_in_own_code(self) -> bool:
        """Whether the job is in what waits for its debugger; debugpy hides that, and there may be nothing else yet."""
        await self.session.look()
        if self.session.reason.get("reason") == "exception":
            return False
        with contextlib.suppress(RequestFailed):  # it is in C code
            return not self.session.frames or await self.session.evaluate(_IS_IN_OWN_CODE) == "True"
        return False

    async def arrive(self) -> None:
        """Show where the job has stopped, or how it has ended."""
        if self.session.over:
            self.screen.show(self.session.over)
            return
        try:
            await self._arrive()
        except RelayDebugError as error:  # it went on, or ended, meanwhile
            self.screen.show(f"*** {error.sentence}")

    async def _arrive(self) -> None:
        session = self.session
        await session.look()
        self.listed = 0
        await self.breakpoints.clear_hit(session.reason.get("hitBreakpointIds", []))
        if session.reason.get("reason") == "exception":
            info = await session.request("exceptionInfo", threadId=session.thread)
            kind = str(info.get("exceptionId", "exception")).split()[0]  # a note about other frames follows
            self.screen.show(f"*** {kind}: {info.get('description')}")
        name = (await session.threads()).get(session.thread, "")
        if name != "MainThread":
            self.screen.show(f"in thread {session.thread}, {name}; 'threads' shows all")
        await self.show_place()

    async def show_place(self) -> None:
        """Show the frame that is looked at, and its line."""
        frame = self.session.frame
        self.screen.show("\n".join(await self.describe([frame])))

    async def show_busy(self) -> None:
        """Say that the job does not stop, and where it is."""
        self.screen.show(
            "the job is in C code and stops when it comes back to Python; 'c' waits for that, 'w' shows where"
        )
        try:
            frames = (await self.session.main_stack())[:1]
            self.screen.show("\n".join(await self.describe(frames)))
        except RelayDebugError as error:
            self.screen.show(f"*** {error.sentence}")

    async def describe(self, frames: list[Frame], current: int = 0) -> list[str]:
        """Return the lines that show frames, the one with index `current` marked."""
        code = await self.source.lines([(frame.path, frame.line) for frame in frames])
        return [
            f"{'>' if number == current else ' '} {frame.place}" + (f"\n-> {line}" if line else "")
            for number, (frame, line) in enumerate(zip(frames, code, strict=True))
        ]

    async def find(self, text: str) -> tuple[str, int, str]:
        """Return the path, line and condition that an argument of `break` means.

        Raises:
            RelayDebugError: there is no such place.
        """
        wanted = parse_wanted(text)
        if wanted.function:
            return (*await self._find_function(wanted.function), wanted.condition)
        return await self._find_file(wanted.file), wanted.line, wanted.condition

    async def _find_function(self, function: str) -> tuple[str, int]:
        try:
            found = await self.session.value(_FIND_FUNCTION.format(function=function))
        except RequestFailed:
            raise UsageError(
                f"'{function}' is no line and no function here", hint="b 12, b file.py:12 or b f"
            ) from None
        if not isinstance(found, tuple):
            raise UsageError(f"'{function}' is no function of Python")
        return str(found[0]), int(found[1])

    async def _find_file(self, name: str) -> str:
        """Return the job's path of a file: one in the stack, of a module, or in its directory."""
        if not name:
            return self.session.frame.path
        if posixpath.isabs(name):
            return name
        suffix = f"/{posixpath.normpath(name)}"
        for frame in self.session.frames:
            if frame.path.endswith(suffix):
                return frame.path
        try:
            found = await self.session.value(_FIND_MODULE.format(suffix=suffix))
            return str(found or await self.session.value(f"__import__('os').path.abspath({name!r})"))
        except NotStopped:
            return self._from_cwd(name)

    def _from_cwd(self, name: str) -> str:
        if not posixpath.isabs(name) and not self._cwd:
            raise UsageError(f"where '{name}' lies is not known while the job runs", hint="write the whole path")
        return posixpath.normpath(posixpath.join(self._cwd, name))
