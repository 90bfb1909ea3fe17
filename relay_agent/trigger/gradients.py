"""The place `nan`: a step of an optimizer whose gradients are not all finite, before the optimizer applies them.

torch calls a hook at the beginning of each step of each optimizer (`register_optimizer_step_pre_hook`). At that moment,
the parameters are still those with which the gradients were computed, and the batch is in the frame of the caller.

Whether all gradients are finite is decided by their sums, as the sum of numbers with a NaN or an infinity is not finite
either; a finite sum can overflow, so only the numbers themselves decide that a gradient is not. To read the sums is to
wait for the device.

torch iterates over its hooks during a step, and a change meanwhile would raise an exception in the job. So hooks are
registered and removed by the main thread, and only while no thread is in a step.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import Any, NamedTuple

from relay_agent.job.gevent_originals import threading, time
from relay_agent.job.main_thread import add_pending_call
from relay_agent.push.loaded_code import callables
from relay_agent.stacks.in_process import all_frames, with_callers
from relay_core.agent_api.stacks import is_library
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
FLOAT32_SIZE = 4
"""Bytes; the sum of numbers that are smaller has this size, because it would overflow often."""
MAX_NAMES = 3
"""Maximum number of parameters that a sentence names."""

WRAPPERS = {"module", "_orig_mod"}
"""The names by which DistributedDataParallel and `torch.compile` refer to the model."""


class GradientHook(NamedTuple):
    """The functions of a watch that are called before a step of an optimizer; as those of `Hook`."""

    reached: Callable[[], int]
    report: Callable[[FrameType, int, Callable[[], str]], None]


class GradientHooks:
    """The hooks of this process."""

    def __init__(self) -> None:
        self._hooks: Sequence[GradientHook] = ()
        self._registered: Any = None
        """What removes torch's hook; None if there is none."""
        self._is_compiling: Callable[[], bool]
        """Whether torch.compile is reading the code."""

    def set_hooks(self, hooks: Sequence[GradientHook]) -> bool:
        """Replace all hooks; return False if the main thread could not be reached, so that none of them is called.

        Raises:
            ConfigurationError: this version of torch has no such hooks.
        """
        self._hooks = tuple(hooks)
        needed = ((MODULE, "register_optimizer_step_pre_hook"), ("torch.compiler", "is_compiling"))
        if hooks and not all(hasattr(sys.modules.get(module), name) for module, name in needed):
            raise ConfigurationError("torch is too old to watch gradients", hint="use a newer version of torch")
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
        if self._is_compiling():  # so that a compiled step contains nothing of this
            return
        try:
            for hook in self._hooks:
                if number := hook.reached():
                    hook.report(_caller(sys._getframe(1)), number, lambda: not_finite(optimizer))  # noqa: SLF001 - as above
        except RecursionError:  # the job is just below the limit
            pass


def is_loaded() -> bool:
    """Return whether the job has imported torch, completely, with its optimizers."""
    is_importing = getattr(getattr(sys.modules.get("torch"), "__spec__", None), "_initializing", False)
    return hasattr(sys.modules.get(MODULE), "Optimizer") and not is_importing


def _caller(frame: FrameType) -> FrameType:
    """Return the frame in the user's code that has called an optimizer; the outermost one if all are of libraries."""
    for each in with_callers(frame):
        frame = each
        if not is_library(each.f_code.co_filename):
            break
    return frame


def not_finite(optimizer: Any) -> str:
    """Return which gradients of an optimizer are not finite, in one sentence; "" if all are, or cannot be read now.

    A step of which the optimizer skips the effect, because it has been given the infinities that a
    `torch.amp.GradScaler` has found, does not count; nor does one that is recorded into a CUDA graph.
    """
    torch: Any = sys.modules["torch"]
    if torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing():
        return ""
    with torch.no_grad():
        found_inf = getattr(optimizer, "found_inf", None)
        if found_inf is not None and bool(found_inf):
            return ""
        gradients = [*_gradients(optimizer)]
        sums: dict[Any, list[Any]] = {}
        for _, gradient in gradients:
            wide = torch.float32 if gradient.element_size() < FLOAT32_SIZE else None
            total = gradient.sum(dtype=wide)
            sums.setdefault((total.device, total.dtype), []).append(total)
        if all(bool(torch.stack(each).sum().isfinite()) for each in sums.values()):
            return ""
        bad = [(parameter, each) for parameter, each in gradients if not bool(each.isfinite().all())]
        return _sentence(torch, optimizer, bad) if bad else ""


def _gradients(optimizer: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each parameter that has a gradient, and the gradient.

    That of a DTensor is the part of this process, and that of a sparse one consists of the values that it contains.
    """
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            gradient = parameter.grad
            if gradient is None:
                continue
            gradient = gradient.to_local() if hasattr(gradient, "to_local") else gradient
            yield parameter, gradient.coalesce().values() if gradient.is_sparse else gradient


def _sentence(torch: Any, optimizer: Any, bad: Sequence[tuple[Any, Any]]) -> str:
    parameter, gradient = bad[0]
    counts = [(int(gradient.isnan().sum()), "NaN"), (int(gradient.isinf().sum()), "inf")]
    what = " and ".join(f"{count} {name}" for count, name in counts if count)
    place = int(gradient.isfinite().logical_not().reshape(-1).byte().argmax())
    first: list[int] = []
    for size in reversed(gradient.shape):
        place, index = divmod(place, size)
        first.insert(0, index)
    names = _names(torch, optimizer, [each for each, _ in bad])
    others = ", ".join(names[1:MAX_NAMES]) + (f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else "")
    also = f"; so {'has' if len(names) == 2 else 'have'} {others}" if others else ""
    step = optimizer.state[parameter].get("step") if parameter in optimizer.state else None
    when = f"{type(optimizer).__name__}.step()" + (f" number {int(step) + 1}" if step is not None else "")
    where = f"among {gradient.numel()} elements, first at {first}"
    return f"the gradient of {names[0]} has {what} {where}{also}; before {when}"


def _names(torch: Any, optimizer: Any, parameters: Sequence[Any]) -> list[str]:
    """Return the names of parameters in the outermost module that has them, or else their places in the optimizer."""
    parents: dict[int, tuple[Any, str]] = {}
    for module in callables():
        if issubclass(type(module), torch.nn.Module):
            names = object.__getattribute__(module, "__dict__")  # without code of the job
            for kind in ("_modules", "_parameters"):
                own = ((id(child), (module, name)) for name, child in names.get(kind, {}).items())
                parents.update(own)
    every = [each for group in optimizer.param_groups for each in group["params"]]
    found = []
    for parameter in parameters:
        path: list[str] = []
        seen, child = set(), parameter
        while id(child) in parents and id(child) not in seen:
            seen.add(id(child))
            child, name = parents[id(child)]
            path.insert(0, name)
        while len(path) > 1 and path[0] in WRAPPERS:
            path.pop(0)
        number = next(index for index, each in enumerate(every) if each is parameter)
        found.append(".".join(path) or f"parameter {number}")
    return found
