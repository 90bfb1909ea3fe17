"""One debug session for all ranks of a job. No I/O.

    editor  ---- receive_editor --->  JobSession  ---- ToRank ------->  the debugger of each rank
            <------ ToEditor -------              <-- receive_rank ---

Beneath this session, each rank has its own debug session, as if an editor had connected to the rank's port. There, this
session acts as the editor: it initializes, attaches, sets breakpoints and lets the rank run. The owner opens and closes
the connections (`join`, `lost`), and executes the outputs (`wire.take`) after each call.

    initialize, attach      answered here, immediately; `initialized` follows even if no rank has joined yet
    breakpoints             to all ranks, and to each rank that joins later: `breakpoints`
    continue, steps, pause  to the ranks of the group: `stepping`, and what follows: `stops`
    threads                 answered here: `thread_list`
    evaluate `@...`         answered here: `console`; `@all`, `@diff` and `@hang` once the agents have answered
    other requests          each to the rank whose thread, frame or value it names: `translation`
    disconnect, terminate   detaches from all ranks: `Leaving`

Child processes that the debugger of a rank offers become members, too; `continue` moves them with their rank.
"""

from __future__ import annotations

import traceback
from pathlib import PurePath

from relay_client.compare.console import Command, command_of, with_formats, with_statistics
from relay_client.editor import attach_answers
from relay_client.editor.ending import harmless
from relay_client.editor.messages import GUARDED, IMPORTANT
from relay_client.job_session.breakpoints import Breakpoints
from relay_client.job_session.console import ConsoleLines, run_command
from relay_client.job_session.members import Member, Members, Phase, RankName
from relay_client.job_session.stepping import MOVING, Stepping
from relay_client.job_session.stops import Stops
from relay_client.job_session.thread_list import ThreadList
from relay_client.job_session.translation import Ids, StaleId
from relay_client.job_session.wire import CloseRank, EndSession, OpenChild, Wire
from relay_core.dap.messages import (
    Arguments,
    Body,
    Event,
    Message,
    Request,
    Response,
    arguments_of,
    is_message,
    reason_of,
)
from relay_core.json_values import mapping

# What the session of all ranks supports: everything that one rank supports, and stepping a single thread.

CAPABILITIES: Body = {**attach_answers.CAPABILITIES, "supportsSingleThreadExecutionRequests": True}
"""The body of the response to `initialize`."""


# The end of a session: at the editor's request, or with the exit code of a job that has ended.

LEAVE_TIMEOUT = 1.5
"""Seconds until the editor is answered even if ranks have not been detached, for example because their network is
down. VS Code waits 2 s for the answer (vscode/src/vs/workbench/contrib/debug/browser/rawDebugSession.ts)."""
_BY_LAUNCHER = {143: 2, 137: 1}
"""SIGTERM and SIGKILL, with which a launcher ends the other ranks once one has failed; it sends SIGTERM first."""


class Leaving:
    """Detaches from all ranks, and then answers the editor.

    An editor that has its answer may connect again at once, and the debugger of a rank closes a connection that is made
    before the previous debug session has ended.

    Args:
        members: The attached ranks; each is removed when its connection has ended.
        wire: For requests and answers.
    """

    def __init__(self, members: Members, wire: Wire) -> None:
        self._members = members
        self._wire = wire
        self._request: Request | None = None
        self.next_deadline: float | None = None
        """When to answer without waiting any longer."""

    def detach(self, *, ends: bool) -> None:
        """Detach from all ranks; they continue, or end if `ends` is true."""
        for member in self._members:
            self._wire.ask(member.number, "disconnect", {"terminateDebuggee": ends})
            self._wire.put(CloseRank(member.number))

    def end_session(self, request: Request, now: float) -> None:
        """Answer the request and end the session once all ranks are detached."""
        self._request, self.next_deadline = request, now + LEAVE_TIMEOUT
        self.left()

    def left(self) -> None:
        """Follow the end of a connection to a rank."""
        if not len(self._members):
            self._finish()

    def tick(self, _now: float) -> None:
        """Answer without waiting any longer."""
        self._finish()

    def _finish(self) -> None:
        if self._request is not None:
            self._wire.answer(self._request)
            self._wire.put(EndSession())
            self._request = self.next_deadline = None


class ExitCodes:
    """The exit codes of the ranks that have ended, in the order in which they became known."""

    def __init__(self) -> None:
        self._found: dict[tuple[bool, int, str], int] = {}

    def __bool__(self) -> bool:
        return bool(self._found)

    def add(self, member: Member, code: int) -> None:
        """Record how a rank has ended, in place of how it ended before it was restarted."""
        self._found.pop(member.order, None)
        self._found[member.order] = code

    @property
    def of_job(self) -> int:
        """The exit code of the rank that failed first, if possible of one that the launcher has not ended; else 0."""
        failed = [code for code in self._found.values() if code]
        return min(failed, key=lambda code: _BY_LAUNCHER.get(code, 0), default=0)


_FOR_ALL = frozenset(
    {
        "setBreakpoints",
        "setDataBreakpoints",
        "setDebuggerProperty",
        "setExceptionBreakpoints",
        "setFunctionBreakpoints",
        "setPydevdSourceMap",
    }
)
"""Requests that every rank receives."""
_CHOOSING = frozenset({"scopes", "evaluate", "completions", "setExpression", "stepInTargets", "gotoTargets"})
"""Requests that reveal which rank the editor shows; a call stack is requested for every thread that stops."""


_UNREADABLE = (AttributeError, IndexError, KeyError, OverflowError, RecursionError, TypeError, ValueError)
"""Raised for a message with a field of the wrong type, or one that is nested too deeply."""


class JobSession:
    """The session of one editor.

    Args:
        allow_terminate: Whether the editor may terminate the job.
    """

    def __init__(self, *, allow_terminate: bool = False) -> None:
        self._allow_terminate = allow_terminate
        self.wire = Wire()
        self._ids = Ids()
        self._members = Members()
        self._breakpoints = Breakpoints(self._members, self.wire)
        self._threads = ThreadList(self._members, self._ids, self.wire)
        self.stops = Stops(self._members, self._ids, self.wire)
        self.stepping = Stepping(self._members, self._ids, self.stops, self._threads, self.wire)
        self._console = ConsoleLines(self.wire)
        self._leaving = Leaving(self._members, self.wire)
        self._timed = (self._breakpoints, self.stops, self._threads, self._console, self._leaving)
        self._initialize: Arguments = {}
        self._attach: Request | None = None
        self._is_configured = False
        """True once the editor has sent `configurationDone`."""
        self._is_over = False
        self._exit_codes = ExitCodes()

    @property
    def wants_ranks(self) -> bool:
        """True once the editor has attached, until it leaves."""
        return self._attach is not None and not self._is_over

    @property
    def has_failed(self) -> bool:
        """True if a rank has failed, or no exit code is known."""
        return self._exit_codes.of_job != 0 or not self._exit_codes

    # Called by the owner:

    def join(self, number: int, name: RankName) -> None:
        """Begin to attach to a rank to which a connection has been opened."""
        member = self._members.add(number, name)
        arguments = {**self._initialize, "supportsRunInTerminalRequest": False, "supportsStartDebuggingRequest": False}
        self.wire.ask(number, "initialize", arguments, lambda response: self._initialized(member, response))

    def has_exit_code(self, number: int) -> bool:
        """Return whether the debugger of a rank has reported the rank's exit code."""
        member = self._members.get(number)
        return member is not None and member.has_exit_code

    def lost(self, number: int, now: float, exit_code: int | None = None) -> None:
        """Remove a rank whose connection has ended.

        Args:
            number: The rank.
            now: The current time.
            exit_code: Its exit code, if it has ended and its debugger has not reported it.
        """
        if (member := self._members.remove(number)) is None:
            return
        if exit_code is not None:
            self._exit_codes.add(member, exit_code)
        self.wire.lost(number)
        self._breakpoints.left(number)
        self.stops.left(number)
        self._threads.left(member)
        self._ids.left(number)
        self._leaving.left()
        self._after(now)

    def show(self, text: str) -> None:
        """Show a line from relay-client in the debug console, after the lines about ranks that led to it."""
        self._console.flush()
        self.wire.show(text)

    def conclude(self, reason: str) -> None:
        """End the session and show the reason, because there is nothing left to debug."""
        if self._is_over:
            return
        self._console.flush()
        if self._attach is not None and not self._is_configured:
            self.wire.fail(self._attach, reason)
        self.show(reason)
        if self._exit_codes:
            self.wire.event("exited", {"exitCode": self._exit_codes.of_job})
        self._is_over = True
        self.wire.event("terminated")

    def next_deadline(self) -> float | None:
        """Return when to call `tick`, or None."""
        deadlines = [part.next_deadline for part in self._timed]
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    def tick(self, now: float) -> None:
        """Do what is due."""
        for part in self._timed:
            if part.next_deadline is not None and now >= part.next_deadline:
                part.tick(now)

    # From the editor:

    def receive_editor(self, message: Message, now: float) -> None:
        """Handle a message from the editor."""
        if not is_message(message, "request"):
            return
        try:
            request = with_formats(with_statistics(message))
            if not self._answer(request, now):
                self._relay(request, now)
        except StaleId as error:
            self.wire.answer_outdated(message, str(error))
        self._after(now)

    def _answer(self, request: Request, now: float) -> bool:
        """Answer a request here; return False if it is for one rank."""
        arguments = arguments_of(request)
        match request["command"]:
            case "initialize":
                self._initialize = arguments
                self.wire.answer(request, CAPABILITIES)
            case "attach" if self._attach is not None:
                self.wire.fail(request, "this session has already attached")
            case "attach":
                self._attach = request
                self.wire.event("initialized")
            case "configurationDone":
                self._configured(request)
            case "threads":
                self.wire.answer(request, self._threads.answer())
            case "disconnect" | "terminate":
                self._leave(request, now)
            case "evaluate" if (typed := command_of(request)) is not None:
                self._run(request, typed, now)
            case command if command in _FOR_ALL and not mapping(arguments.get("source")).get("sourceReference"):
                if command == "setBreakpoints" and not isinstance(mapping(arguments.get("source")).get("path"), str):
                    self.wire.fail(request, "the source of the breakpoints has no path")  # debugpy would exit
                else:
                    self._breakpoints.requested(request, now)
            case _:
                return False
        return True

    def _run(self, request: Request, command: Command, now: float) -> None:
        if command.name == "ranks":
            self.stops.answer_where(request, now)
        else:
            run_command(request, command, self.stepping, self._threads, self.wire)

    def _configured(self, request: Request) -> None:
        self.wire.answer(request)
        if self._attach is not None and not self._is_configured:
            self.wire.answer(self._attach)
        self._is_configured = True
        for member in self._members:
            if member.phase is Phase.CONFIGURING:
                self.wire.ask(member.number, "configurationDone")

    def _leave(self, request: Request, now: float) -> None:
        """Detach from all ranks; they continue unless the editor asks to terminate the job and is allowed to do so."""
        is_end = harmless(request) is not request
        ends = is_end and self._allow_terminate
        self._is_over = True
        self._leaving.detach(ends=ends)
        if is_end and not ends:
            self.wire.show(GUARDED)
        if request["command"] == "terminate":  # the editor then sends `disconnect`
            self.wire.answer(request)
            self.wire.event("terminated")
        else:
            self._leaving.end_session(request, now)

    def _relay(self, request: Request, now: float) -> None:
        """Pass a request on to the rank that it concerns."""
        command = request["command"]
        number, arguments = self._ids.to_rank(command, arguments_of(request))
        member = self._members.get(number if number is not None else self._default())
        if member is None:
            self.wire.fail(request, "no rank is attached")
            return
        if command in MOVING:
            self.stepping.requested(request, member, arguments, now)
            return
        if command in _CHOOSING:
            self._members.chosen = member.number
        if command == "stackTrace" and self.stops.answer_stack(member, request, arguments):
            return
        self.wire.ask(member.number, command, arguments, lambda response: self._pass(request, member, response))

    def _default(self) -> int | None:
        """Return the rank for a request that names none: the one that the editor shows, or else the first one."""
        if self._members.get(self._members.chosen) is not None:
            return self._members.chosen
        return next((member.number for member in self._members.attached), None)

    def _pass(self, request: Request, member: Member, response: Response) -> None:
        """Answer a request with a rank's response."""
        if response.get("success") is not True:
            self.wire.fail(request, reason_of(response))
            return
        body = response.get("body")
        changed = self._ids.to_editor(request["command"], member.number, body) if isinstance(body, dict) else None
        self.wire.answer(request, changed)

    # From the ranks:

    def receive_rank(self, number: int, message: Message, now: float) -> None:
        """Handle a message from a rank's debugger; a rank whose message cannot be processed is left out."""
        try:
            self._received(number, message, now)
        except _UNREADABLE as error:
            self.leave_out(number, f"a message from its debugger could not be processed ({_place(error)})")

    def leave_out(self, number: int, problem: str) -> None:
        """Close the connection to a rank whose messages cannot be processed, and show why."""
        if (member := self._members.get(number)) is not None:
            self.wire.show(f"{member.name.label} is left out: {problem}", IMPORTANT)
        self.wire.put(CloseRank(number))

    def _received(self, number: int, message: Message, now: float) -> None:
        member = self._members.get(number)
        if is_message(message, "response"):
            self.wire.answered(number, message)
        elif is_message(message, "request"):
            self.wire.refuse(number, message)
        elif is_message(message, "event") and member is not None:
            self._happened(member, message, now)
        self._after(now)

    def _happened(self, member: Member, event: Event, now: float) -> None:
        body: Body = event.get("body") or {}
        if not isinstance(body, dict):
            raise TypeError("the body of an event is not an object")
        match event["event"]:
            case "initialized":
                self._configure(member)
            case "stopped":
                hit = self._breakpoints.ids_of(member.number, body.get("hitBreakpointIds"))
                takes_focus = self.stops.stopped(member, body, now, hit)
                self._threads.show_stopped(member, takes_focus=takes_focus)
                self._hold(hit)
            case "continued":
                self.stepping.runs(member)
            case "thread":
                self._threads.happened(member, event)
            case "breakpoint":
                self._breakpoints.changed(member.number, body)
            case "output":
                self._console.received(member, self._ids.to_editor("output", member.number, body), now)
            case name:
                self._process_happened(member, name, body)

    def _process_happened(self, member: Member, name: str, body: Body) -> None:
        """Handle an event about the process of a member, or about one of its child processes."""
        match name:
            case "debugpyAttach":
                self.wire.put(OpenChild(member.number, int(body["subProcessId"])))
            case "exited" if member.name.child is None:
                self._exit_codes.add(member, int(body.get("exitCode", 0)))
                member.has_exit_code = True
            case "terminated":
                self.wire.put(CloseRank(member.number))

    def _after(self, now: float) -> None:
        """Show what the last message has changed."""
        self.stops.sum_up_if_complete(now)
        self._threads.schedule(now)

    # Attaching to a rank:

    def _initialized(self, member: Member, response: Response) -> None:
        if not self._may_continue(member, response):
            return
        wanted = arguments_of(self._attach or {})
        arguments = {**wanted, "subProcess": wanted.get("subProcess") is True}
        if member.name.child is not None:
            arguments["subProcessId"] = member.name.child
        self.wire.ask(member.number, "attach", arguments, lambda attached: self._attached(member, attached))

    def _configure(self, member: Member) -> None:
        if member.phase is Phase.CONNECTING:
            member.phase = Phase.CONFIGURING
            self._breakpoints.configure(member)
            if self._is_configured:
                self.wire.ask(member.number, "configurationDone")

    def _attached(self, member: Member, response: Response) -> None:
        if self._may_continue(member, response):
            member.phase = Phase.ATTACHED
            self._threads.ask(member)
            self._hold([number for each in self._members if each.stop for number in each.stop.hit])

    def _hold(self, hit: list[int]) -> None:
        """Stop all ranks if one of the breakpoints that were hit holds all of them."""
        if self._breakpoints.hold_all(hit):
            ranks = [each for each in self._members.attached if each.name.child is None]
            self.stepping.pause([each for each in ranks if not each.is_pausing])

    def _may_continue(self, member: Member, response: Response) -> bool:
        """Return whether a step of attaching has succeeded; if it has not, show the reason and leave the rank out."""
        if self._members.get(member.number) is not member or self._is_over:
            return False
        if response.get("success") is True:
            return True
        self.wire.show(reason_of(response))
        self.wire.put(CloseRank(member.number))
        return False


def _place(error: Exception) -> str:
    """Return the type of an exception, and where it was raised."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} at {PurePath(frame.filename).name}:{frame.lineno}"
