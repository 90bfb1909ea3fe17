"""The place that consists of all steps of optimizers, before an optimizer applies the gradients.

torch calls a hook at the beginning of each step of each optimizer (`register_optimizer_step_pre_hook`). At that moment,
the parameters are still those with which the gradients were computed, and the batch is in the frame of the caller.

torch iterates over its hooks during a step, and a change meanwhile would raise an exception in the job. So hooks are
registered and removed by the main thread, and only while no thread is in a step.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any, NamedTuple

from relay_agent.job.gevent_originals import threading, time
from relay_agent.job.main_thread import add_pending_call
from relay_agent.stacks.in_process import all_frames, is_users, program_frame, with_callers
from relay_core.errors import ConfigurationError

PLACE = "optimizer steps"
MODULE = "torch.optim.optimizer"
HOOKS = "_global_optimizer_pre_hooks"
"""torch's hooks; here only to find out who is using them."""
ATTEMPTS = 5
ATTEMPT_TIME = 0.1
"""Seconds for each attempt to reach the main thread, and at most the same from one to the next."""
LATER = "the watch begins as soon as the main thread executes Python code outside of an optimizer step"
"""The note until this has succeeded."""


class StepHook(NamedTuple):
    """The functions of a watch that are called before a step of an optimizer; as those of `Hook`."""

    reached: Callable[[], int]
    report: Callable[[FrameType, int, Callable[[], str]], None]
    is_due: Callable[[Any], bool]
    """Whether the step of an optimizer counts."""
    find: Callable[[Any], str]
    """Returns what there is to report about the step; "" for nothing."""


class StepHooks:
    """The hooks of this process."""

    def __init__(self) -> None:
        self._hooks: Sequence[StepHook] = ()
        self._registered: Any = None
        """What removes torch's hook; None if there is none."""
        self._is_compiling: Callable[[], bool]
        """Whether torch.compile is reading the code."""

    def set_hooks(self, hooks: Sequence[StepHook]) -> bool:
        """Replace all hooks; return False if the main thread could not be reached, so that none of them is called.

        Raises:
            ConfigurationError: this version of torch has no such hooks.
        """
        self._hooks = tuple(hooks)
        needed = ((MODULE, "register_optimizer_step_pre_hook"), ("torch.compiler", "is_compiling"))
        if hooks and not all(hasattr(sys.modules.get(module), name) for module, name in needed):
            raise ConfigurationError(
                "torch is too old to watch the steps of optimizers", hint="use a newer version of torch"
            )
        for _ in range(ATTEMPTS):
            if bool(self._hooks) == (self._registered is not None):
                break
            executed = threading.Lock()
            executed.acquire()
            add_pending_call(functools.partial(self._register, executed.release))
            if executed.acquire(timeout=ATTEMPT_TIME) and bool(self._hooks) != (self._registered is not None):
                time.sleep(ATTEMPT_TIME)  # the main thread is in a step
        return not hooks or self._registered is not None

    def disarm(self) -> None:
        """Make all hooks do nothing."""
        self._hooks = ()

    def _register(self, executed: Callable[[], None]) -> None:
        """Register or remove torch's hook in the main thread, unless a function that iterates over the hooks runs."""
        optimizer: Any = sys.modules[MODULE]
        names = (frame.f_code.co_names for _, frame in all_frames() if frame.f_globals is vars(optimizer))
        if not any(HOOKS in each for each in names):
            if self._hooks and self._registered is None:
                self._is_compiling = sys.modules["torch.compiler"].is_compiling
                self._registered = optimizer.register_optimizer_step_pre_hook(self._before_step)
            elif not self._hooks and self._registered is not None:
                self._registered.remove()
                self._registered = None
        executed()

    def _before_step(self, optimizer: Any, _args: object, _kwargs: object) -> None:
        if self._is_compiling() or _is_recorded():  # so that neither contains anything of this
            return
        try:
            for hook in self._hooks:
                if hook.is_due(optimizer) and (number := hook.reached()):
                    find = functools.partial(hook.find, optimizer)
                    hook.report(caller_of_step(sys._getframe(1)), number, find)  # noqa: SLF001 - its documented name
        except RecursionError:  # the job is just below the limit
            pass


def caller_of_step(frame: FrameType) -> FrameType:
    """Return the innermost frame of the program's own code; if there is none, that of a library which is not torch."""
    if is_users(own := program_frame(frame)):
        return own
    return next((each for each in with_callers(frame) if "/torch/" not in each.f_code.co_filename), frame)


def is_loaded() -> bool:
    """Return whether the job has imported torch, completely, with its optimizers."""
    is_importing = getattr(getattr(sys.modules.get("torch"), "__spec__", None), "_initializing", False)
    return hasattr(sys.modules.get(MODULE), "Optimizer") and not is_importing


def _is_recorded() -> bool:
    """Return whether the operations are recorded into a CUDA graph, which must not wait for the device."""
    cuda: Any = sys.modules["torch.cuda"]
    return bool(cuda.is_initialized() and cuda.is_current_stream_capturing())
