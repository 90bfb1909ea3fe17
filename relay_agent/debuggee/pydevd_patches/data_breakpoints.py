"""Patch that adds data breakpoints to pydevd: requests of the Debug Adapter Protocol that it does not support.

What a data breakpoint compares, and where, is in `relay_agent.trigger.stores`. A value has an id in its own process
only. In a session of several processes, each receives all data breakpoints, and verifies those of its values.
"""

from __future__ import annotations

import os
from types import FrameType
from typing import Any

from relay_agent.debuggee.stopping import stop_in
from relay_agent.debugpy_internals.table import DATA_BREAKPOINTS
from relay_agent.job.gevent_originals import threading
from relay_agent.job.stderr import describe_exception
from relay_core.errors import ConfigurationError

MAX_OFFERED = 16
"""Maximum number of values that the user may choose from; an editor requests one when it shows a menu."""
ELSEWHERE = "this value belongs to another process, or to an earlier debug session"

_offered: dict[str, Any] = {}
"""Values that can be watched, by id."""
_chosen: dict[str, Any] = {}
"""The data breakpoints, by the id of their value."""
_reasons: dict[int, str] = {}
"""Why threads are being stopped, by ident."""


def install() -> None:
    """Patch pydevd in this process and its forked children."""
    if not DATA_BREAKPOINTS.is_available():
        return
    from _pydevd_bundle.pydevd_api import PyDevdAPI  # noqa: PLC0415 - in debug runs only, as below
    from _pydevd_bundle.pydevd_net_command import NetCommand  # noqa: PLC0415
    from _pydevd_bundle.pydevd_net_command_factory_json import NetCommandFactoryJson  # noqa: PLC0415
    from _pydevd_bundle.pydevd_process_net_command_json import PyDevJsonCommandProcessor  # noqa: PLC0415

    disconnect = PyDevdAPI.request_disconnect
    make_stopped = NetCommandFactoryJson.make_thread_suspend_single_notification

    def respond(request: Any, body: dict[str, Any]) -> Any:
        response = {"type": "response", "request_seq": request.seq, "command": request.command, "success": True}
        return NetCommand(0, 0, {**response, "body": body}, is_json=True)

    def info(_processor: Any, debugger: Any, request: Any) -> Any:
        """Handle `dataBreakpointInfo`, in pydevd's thread."""
        return respond(request, _offer(debugger, request.arguments))

    def set_all(_processor: Any, _debugger: Any, request: Any) -> Any:
        """Handle `setDataBreakpoints`, in pydevd's thread."""
        return respond(request, {"breakpoints": _set(request.arguments.breakpoints)})

    def disconnect_and_forget(api: Any, *arguments: Any, **named: Any) -> None:
        """Handle the end of a debug session."""
        if _chosen or _offered:
            _set([])
        disconnect(api, *arguments, **named)

    def make_with_reason(factory: Any, debugger: Any, thread_id: Any, thread: Any, reason: Any) -> Any:
        """Return the `stopped` event of a thread."""
        command = make_stopped(factory, debugger, thread_id, thread, reason)
        text = _reasons.get(thread.ident)
        if text is not None and not DATA_BREAKPOINTS.is_off:
            with DATA_BREAKPOINTS.guarded():
                event = command.as_dict
                body = {**event["body"], "reason": "data breakpoint", "description": text, "text": text}
                return NetCommand(command.id, command.seq, {**event, "body": body}, is_json=True)
        return command

    PyDevJsonCommandProcessor.on_databreakpointinfo_request = info
    PyDevJsonCommandProcessor.on_setdatabreakpoints_request = set_all
    PyDevdAPI.request_disconnect = disconnect_and_forget
    NetCommandFactoryJson.make_thread_suspend_single_notification = make_with_reason


def _offer(debugger: Any, arguments: Any) -> dict[str, Any]:
    """Return the answer for the value that the user has selected: its id, or why it cannot be watched."""
    try:
        stored = _find(debugger, arguments)
    except Exception as error:  # noqa: BLE001 - of pydevd's tables, or of the value's types
        known = error.sentence if isinstance(error, ConfigurationError) else describe_exception(error)
        return {"dataId": None, "description": f"{arguments.name} cannot be watched: {known}"}
    while len(_offered) >= MAX_OFFERED:
        del _offered[next(iter(_offered))]
    _offered[number := os.urandom(8).hex()] = stored
    return {"dataId": number, "description": stored.name, "accessTypes": ["write"], "canPersist": False}


def _find(debugger: Any, arguments: Any) -> Any:
    from relay_agent.trigger.stores import part, variable  # noqa: PLC0415 - when the first one is wanted

    scope = arguments.variablesReference
    if scope is None:
        raise ConfigurationError("an expression has no place in which it is stored")
    reference = getattr(scope, "variable_reference", scope)
    try:
        owner = debugger.suspended_frames_manager.get_variable(reference)
    except KeyError:
        raise ConfigurationError("its thread runs again") from None
    if isinstance(owner.value, FrameType) and owner.value is owner.frame:
        return variable(owner.frame, arguments.name, is_global=getattr(scope, "scope", "") == "globals")
    if owner.frame is None:
        raise ConfigurationError("it belongs to no frame")
    return part(owner.value, owner.evaluate_name or owner.name, arguments.name, owner.frame)


def _set(wanted: list[Any]) -> list[dict[str, Any]]:
    """Replace all data breakpoints; return the state of each."""
    from relay_agent.trigger.stores import DataBreakpoint  # noqa: PLC0415 - when the first one is wanted
    from relay_agent.trigger.table import watches  # noqa: PLC0415

    found: dict[str, DataBreakpoint] = {}
    refused: dict[str, str] = {}
    requested = [each if isinstance(each, dict) else each.to_dict() for each in wanted]
    for each in requested:
        number, condition = each["dataId"], each.get("condition") or ""
        before = _chosen.get(number)
        stored = before.stored if before else _offered.get(number)
        try:
            if stored is None:
                raise ConfigurationError(ELSEWHERE)
            if each.get("hitCondition"):
                raise ConfigurationError("a data breakpoint has no hit count")
            is_same = before is not None and before.condition == condition
            found[number] = before if before and is_same else DataBreakpoint(stored, condition, _stop)
        except ConfigurationError as error:
            refused[number] = error.sentence
    _chosen.clear()
    _chosen.update(found)
    _offered.clear()
    note = ""
    try:
        note = watches.set_others(lambda: [hook for each in found.values() for hook in each.hooks()])
    except ConfigurationError as error:
        refused |= dict.fromkeys(found, str(error))
    states = (
        {"verified": each["dataId"] not in refused, "message": refused.get(each["dataId"], note)} for each in requested
    )
    return [state if state["message"] else {"verified": True} for state in states]


def _stop(frame: FrameType, reason: str) -> None:
    """Stop the current thread, unless it is one of pydevd's, or the debugger has gone."""
    import debugpy  # noqa: PLC0415 - in debug runs only

    if getattr(threading.current_thread(), "is_pydev_daemon_thread", False) or not debugpy.is_client_connected():
        return
    _reasons[threading.get_ident()] = reason
    try:
        stop_in(frame, is_before_line=True)
    finally:
        _reasons.pop(threading.get_ident(), None)
