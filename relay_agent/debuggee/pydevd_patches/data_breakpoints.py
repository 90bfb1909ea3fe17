"""Patch that adds data breakpoints to pydevd: requests of the Debug Adapter Protocol that it does not support.

What a data breakpoint compares, and where, is in `relay_agent.trigger.stores`. A value has an id in its own process
only. In a session of several processes, each receives all data breakpoints, and verifies those of its values.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any
from weakref import WeakValueDictionary

from relay_agent.debuggee.stopping import ends_step, stop_in
from relay_agent.debugpy_internals.table import DATA_BREAKPOINTS
from relay_agent.job.gevent_originals import threading
from relay_agent.job.stderr import describe_exception
from relay_core.errors import ConfigurationError

MAX_KNOWN = 100
"""Maximum number of data breakpoints of a session, with those that the user has switched off or removed."""
ELSEWHERE = "this value belongs to another process, or to a stop or debug session that is over"
RUNNING = "up to Python 3.11, calls that are already running are not watched"

_offered: WeakValueDictionary[str, Any] = WeakValueDictionary()
"""The values for which an editor has shown its menu; they are forgotten once the thread runs again."""
_known: dict[str, Any] = {}
"""The data breakpoints of the session, by the id of their value; an editor may switch them off and on again."""
_reasons: dict[int, str] = {}
"""Why threads are being stopped, by ident."""


def install() -> None:
    """Patch pydevd in this process and its forked children."""
    from _pydevd_bundle.pydevd_api import PyDevdAPI  # noqa: PLC0415 - in debug runs only, as below
    from _pydevd_bundle.pydevd_net_command import NetCommand  # noqa: PLC0415
    from _pydevd_bundle.pydevd_net_command_factory_json import NetCommandFactoryJson  # noqa: PLC0415
    from _pydevd_bundle.pydevd_process_net_command_json import PyDevJsonCommandProcessor  # noqa: PLC0415

    disconnect = PyDevdAPI.request_disconnect
    make_stopped = NetCommandFactoryJson.make_thread_suspend_single_notification

    def info(_processor: Any, debugger: Any, request: Any) -> Any:
        """Handle `dataBreakpointInfo`, in pydevd's thread."""
        return _response(request, lambda: _offer(debugger, request.arguments))

    def set_all(_processor: Any, _debugger: Any, request: Any) -> Any:
        """Handle `setDataBreakpoints`, in pydevd's thread."""
        return _response(request, lambda: {"breakpoints": _set(request.arguments.breakpoints)})

    def disconnect_and_forget(api: Any, *arguments: Any, **named: Any) -> None:
        """Handle the end of a debug session."""
        forget()
        disconnect(api, *arguments, **named)

    def make_with_reason(factory: Any, debugger: Any, thread_id: Any, thread: Any, reason: Any) -> Any:
        """Return the `stopped` event of a thread."""
        command = make_stopped(factory, debugger, thread_id, thread, reason)
        text = _reasons.pop(thread.ident, None)
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


def patch_wait(debugger_class: Any) -> None:
    """Patch a class so that no thread stops for what the user changes meanwhile."""
    wait = debugger_class.do_wait_suspend

    def wait_and_renew(debugger: Any, *arguments: Any, **named: Any) -> None:
        """Wait while a thread is stopped."""
        wait(debugger, *arguments, **named)
        _reasons.pop(threading.get_ident(), None)
        for each in list(_known.values()):
            each.renew()

    debugger_class.do_wait_suspend = wait_and_renew


def _response(request: Any, answer: Callable[[], dict[str, Any]]) -> Any:
    """Return the message with the answer to a request."""
    from _pydevd_bundle.pydevd_net_command import NetCommand  # noqa: PLC0415 - in debug runs only

    response: dict[str, Any] = {"type": "response", "request_seq": request.seq, "command": request.command}
    try:
        response |= {"success": True, "body": answer()}
    except Exception as error:  # noqa: BLE001 - fields of the wrong type, or an audit hook; pydevd would end the session
        response |= {"success": False, "message": describe_exception(error)}
    return NetCommand(0, 0, response, is_json=True)


def forget() -> None:
    """Remove all data breakpoints, because the debug session is over."""
    _reasons.clear()
    if _known:
        _set([])
        _known.clear()


def _offer(debugger: Any, arguments: Any) -> dict[str, Any]:
    """Return the answer for the value that the user has selected: its id, or why it cannot be watched."""
    try:
        stored = _find(debugger, arguments)
    except Exception as error:  # noqa: BLE001 - of pydevd's tables, or of the value's types
        known = error.sentence if isinstance(error, ConfigurationError) else describe_exception(error)
        return {"dataId": None, "description": f"{arguments.name} cannot be watched: {known}"}
    number = os.urandom(8).hex()
    _offered[number] = stored
    return {"dataId": number, "description": stored.name, "accessTypes": ["write"], "canPersist": False}


def _find(debugger: Any, arguments: Any) -> Any:
    from relay_agent.trigger.stores import part, variable  # noqa: PLC0415 - when the first one is wanted

    scope = arguments.variablesReference
    if scope is None:
        raise ConfigurationError("an expression has no place in which it is stored")
    reference = getattr(scope, "variable_reference", scope)
    manager = debugger.suspended_frames_manager
    try:
        owner = manager.get_variable(reference)
    except KeyError:
        raise ConfigurationError("its thread runs again") from None
    if owner.frame is None:
        raise ConfigurationError("it belongs to no frame")
    if owner.value is owner.frame:
        stored = variable(owner.frame, arguments.name, is_global=getattr(scope, "scope", "") == "globals")
    else:
        stored = part(owner.value, owner.evaluate_name or owner.name, arguments.name, owner.frame)
    stop = manager.get_frame_tracker(manager.get_thread_id_for_variable_reference(reference))
    vars(stop).setdefault("relay_debug", []).append(stored)  # pydevd keeps it until the thread runs again
    return stored


def _set(wanted: list[Any]) -> list[dict[str, Any]]:
    """Replace all data breakpoints; return the state of each."""
    from relay_agent.trigger.table import watches  # noqa: PLC0415 - when the first one is wanted

    found: dict[str, Any] = {}
    refused: dict[str, str] = {}
    requested = [each if isinstance(each, dict) else each.to_dict() for each in wanted]
    numbers = [each["dataId"] for each in requested]
    for number, each in zip(numbers, requested, strict=True):
        try:
            found[number] = _data_breakpoint(number, each.get("condition") or "", each.get("hitCondition"))
        except ConfigurationError as error:
            refused[number] = error.sentence
    _known.update(found)
    for number, known in list(_known.items()):
        known.is_on = number in found
        if not known.is_on and (known.is_local or len(_known) > MAX_KNOWN):  # it would keep a call in memory
            del _known[number]
    note = ""
    try:
        note = watches.set_others(lambda: [hook for each in found.values() for hook in each.hooks()])
    except ConfigurationError as error:
        refused |= dict.fromkeys(found, str(error))
    for known in _known.values():
        known.renew()
    if sys.version_info < (3, 12):  # where a debugger has the trace function of the main thread
        note = RUNNING
    notes = {number: "; ".join(filter(None, (each.note, note))) for number, each in found.items()} | refused
    states = [{"verified": number not in refused, "message": notes[number]} for number in numbers]
    return [{**state, "reason": "pending"} if state["message"] == ELSEWHERE else state for state in states]


def _data_breakpoint(number: str, condition: str, hits: object) -> Any:
    """Return the data breakpoint for a value, the one that there is if its condition is the same.

    Raises:
        ConfigurationError: there is no such value, or the breakpoint is not supported.
    """
    from relay_agent.trigger.stores import DataBreakpoint  # noqa: PLC0415 - when the first one is wanted

    known = _known.get(number)
    stored = known.stored if known else _offered.get(number)
    if stored is None:
        raise ConfigurationError(ELSEWHERE)
    if hits:
        raise ConfigurationError("a data breakpoint has no hit count")
    return known if known and known.condition == condition else DataBreakpoint(stored, condition, _stop)


def _stop(frame: FrameType, reason: str, is_returning: bool) -> None:
    """Stop the current thread, unless it is one of pydevd's, or the debugger has gone."""
    import debugpy  # noqa: PLC0415 - in debug runs only

    if getattr(threading.current_thread(), "is_pydev_daemon_thread", False) or not debugpy.is_client_connected():
        return
    _reasons[threading.get_ident()] = reason
    if not is_returning and ends_step(frame):
        return  # to pydevd's event of the line, at which it would stop once more
    try:
        stop_in(frame, is_before_line=not is_returning, is_returning=is_returning)
    finally:
        _reasons.pop(threading.get_ident(), None)
