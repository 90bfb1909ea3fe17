"""The response of debugpy 1.8.14 and later to `initialize`, without what `prefetch.response_cache` removes."""

from __future__ import annotations

from relay_core.dap.messages import Body

__all__ = ["DEBUGPY_CAPABILITIES"]

_SUPPORTED = (
    "ClipboardContext",
    "CompletionsRequest",
    "ConditionalBreakpoints",
    "ConfigurationDoneRequest",
    "DebuggerProperties",
    "EvaluateForHovers",
    "ExceptionInfoRequest",
    "ExceptionOptions",
    "FunctionBreakpoints",
    "GotoTargetsRequest",
    "HitConditionalBreakpoints",
    "LogPoints",
    "ModulesRequest",
    "SetExpression",
    "SetVariable",
    "StepInTargetsRequest",
    "TerminateDebuggee",
    "TerminateRequest",
    "ValueFormattingOptions",
)

DEBUGPY_CAPABILITIES: Body = {
    **{f"supports{name}": True for name in _SUPPORTED},
    "exceptionBreakpointFilters": [
        {
            "filter": "raised",
            "label": "Raised Exceptions",
            "default": False,
            "description": "Break whenever any exception is raised.",
        },
        {
            "filter": "uncaught",
            "label": "Uncaught Exceptions",
            "default": True,
            "description": "Break when the process is exiting due to unhandled exception.",
        },
        {
            "filter": "userUnhandled",
            "label": "User Uncaught Exceptions",
            "default": False,
            "description": "Break when exception escapes into library code.",
        },
    ],
}
"""The body of the response; it depends neither on the editor nor on the program."""
