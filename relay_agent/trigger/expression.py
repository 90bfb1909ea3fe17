"""Evaluates an expression in a frame, in the job's own thread, and never raises what the expression raises."""

from __future__ import annotations

import contextlib
import sys
from types import CodeType, FrameType
from typing import Any, NamedTuple

from relay_agent.job.signal_handlers import is_of_signal
from relay_agent.job.stderr import describe_exception
from relay_agent.stacks.in_process import with_callers
from relay_agent.values.static_path import type_name
from relay_core.errors import ConfigurationError


class Expression(NamedTuple):
    """A compiled expression."""

    code: CodeType
    has_scopes: bool
    """Whether it contains a lambda or comprehension, which sees only global names."""

    @classmethod
    def of(cls, text: str) -> Expression | None:
        """Compile a text; return None for "".

        Raises:
            ConfigurationError: the text is not an expression.
        """
        if not text.strip():
            return None
        try:
            code = compile(text.strip(), "<relay-client watch>", "eval", dont_inherit=True)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise ConfigurationError(f"invalid expression '{text.strip()}': {describe_exception(error)}") from None
        return cls(code, any(isinstance(each, CodeType) for each in code.co_consts))

    def value(self, frame: FrameType, names: dict[str, Any]) -> Any:
        """Return the value in a frame with these local names; torch records no gradients meanwhile."""
        scope = frame.f_globals
        if self.has_scopes or not dict.__contains__(scope, "__builtins__"):  # which `eval` would add
            scope = {**scope}
        if self.has_scopes:
            scope = names = {**scope, **names}
        # Without gradients, torch saves no tensors; activation checkpointing would find more in its first run.
        no_grad: Any = getattr(sys.modules.get("torch"), "no_grad", contextlib.nullcontext)
        with no_grad():
            return eval(self.code, scope, names)  # noqa: S307 - with the rights of a debugger


def failure(error: BaseException) -> str:
    """Return the description of an exception of the expression; raise an exception of a signal handler again.

    What the caller has called is removed from the traceback, because the job may keep the exception, and with it the
    frames of the job and all their values.
    """
    described, caller = _described(error), sys._getframe(1)  # noqa: SLF001 - its documented name
    member = BaseException.__dict__["__traceback__"]  # without code of a subclass
    traceback = member.__get__(error)
    while traceback is not None and any(each is caller for each in with_callers(traceback.tb_frame)):
        traceback = traceback.tb_next
    member.__set__(error, traceback)
    return described


def _described(error: BaseException) -> str:
    try:
        if not is_of_signal(error):
            try:
                return describe_exception(error)
            except BaseException as hostile:  # noqa: BLE001 - the job's `__str__` may raise anything
                if not is_of_signal(hostile):
                    return type_name(type(error))  # without the code of a metaclass
                error = hostile
    except (RecursionError, MemoryError):  # too deep for these calls; a handler would have been deeper
        return "an exception that cannot be described"
    raise error
