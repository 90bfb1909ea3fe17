"""Gradients that are not all finite, before an optimizer applies them.

Whether all gradients are finite is decided by their sums, as the sum of numbers with a NaN or an infinity is not finite
either; a finite sum can overflow, so only the numbers themselves decide that a gradient is not. To read the sums is to
wait for the device.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Any

from relay_agent.push.loaded_code import callables

FLOAT32_SIZE = 4
"""Bytes; the sum of numbers that are smaller has this size, because it would overflow often."""
MAX_NAMES = 3
"""Maximum number of parameters that a sentence names."""

WRAPPERS = {"module", "_orig_mod"}
"""The names by which DistributedDataParallel and `torch.compile` refer to the model."""


def not_finite(optimizer: Any) -> str:
    """Return which gradients of an optimizer are not finite, in one sentence; "" if all are, or cannot be read now.

    A step of which the optimizer skips the effect, because it has been given the infinities that a
    `torch.amp.GradScaler` has found, does not count.
    """
    torch: Any = sys.modules["torch"]
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
