"""Raises the timeouts of collective communication, because a rank that is stopped in a debugger delays its peers.

To its peers, a rank at a breakpoint looks dead: torch.distributed times out after 10 minutes (NCCL) or 30 minutes
(gloo), or after the timeout that the job sets. The timeout is fixed when the peers start an operation, so it must be
raised at the start of every rank, not when one of them stops.

Some limits are read from environment variables:

    TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC     480 s       torch: c10d/ProcessGroupNCCL.hpp
    DEEPSPEED_TIMEOUT                    30 min      deepspeed/constants.py; in minutes
    HOROVOD_GLOO_TIMEOUT_SECONDS         30 s        horovod/common/gloo/gloo_context.cc
    HOROVOD_STALL_SHUTDOWN_TIME_SECONDS  off         horovod/common/stall_inspector.h; raised only if it is set

The other limits are arguments inside torch.distributed. This module never imports torch. When the job imports it, an
import hook wraps the functions that pass on timeouts. Process groups, their stores and barriers then get at least the
requested timeout, instead of the default or a shorter one; a longer one is kept.

The timeouts were verified with gloo (torch 2.13), but not with NCCL, which requires a GPU. According to torch's source
(ProcessGroupNCCL.hpp), NCCL's watchdog compares an operation's age with the timeout of its group, which is raised here,
and the monitor uses the variable above.

This module does not cover the exit barrier of torchrun (5 minutes between nodes), the `timeout` of a TCPStore that the
job creates, torch.distributed.rpc, or external supervision of the job, such as liveness probes and wall-clock limits.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Mapping, MutableMapping
from typing import TYPE_CHECKING, Any, NamedTuple

from relay_agent import stderr
from relay_agent.import_hook import after_import
from relay_agent.settings.model import DEFAULT_TIMEOUTS

if TYPE_CHECKING:
    from datetime import timedelta
    from types import ModuleType

__all__ = ["raise_timeouts", "timeout_variables"]

C10D = "torch.distributed.distributed_c10d"

_GROUPS = "_new_process_group_helper"
"""Every process group is created by this function, which has no default timeout."""
_DEFAULT = "_get_default_timeout"
_WRAPPED = (
    _GROUPS,
    "rendezvous",
    "_store_based_barrier",
    "_set_pg_timeout",
    "split_group",
    "barrier",
    "monitored_barrier",
)
"""Functions of `C10D` with a `timeout` argument; an older torch may not have all of them."""


class _Variable(NamedTuple):
    name: str
    unit: int = 1
    """Seconds per unit of the value."""
    has_default: bool = True
    """Whether a limit applies if the variable is not set."""


_VARIABLES = (
    _Variable("TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC"),
    _Variable("DEEPSPEED_TIMEOUT", unit=60),
    _Variable("HOROVOD_GLOO_TIMEOUT_SECONDS"),
    _Variable("HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", has_default=False),
)


def timeout_variables(seconds: float, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables to set so that none of their limits is below `seconds`.

    A longer limit is kept. A text that is not a number is kept too; the library that reads it reports the error.
    """
    changes = {}
    for variable in _VARIABLES:
        text = environ.get(variable.name, "")
        wanted = math.ceil(seconds / variable.unit)
        if (not text and variable.has_default) or (text.isdecimal() and _limits(text, variable, wanted)):
            changes[variable.name] = str(wanted)
    return changes


def _limits(text: str, variable: _Variable, wanted: int) -> bool:
    """Whether a variable's value is a limit below `wanted`; 0 means unlimited if the variable has no default limit."""
    return int(text) < wanted and (variable.has_default or int(text) > 0)


def raise_timeouts(
    seconds: float = DEFAULT_TIMEOUTS,
    *,
    environ: MutableMapping[str, str] | None = None,
    warn: Callable[[str], None] = stderr.write_line,
) -> None:
    """Raise the timeouts of collective operations in this process and its children to at least `seconds`.

    A timeout that cannot be raised causes a warning, never an error. A second call can raise the timeouts further.

    Args:
        seconds: Minimum timeout of each collective operation.
        environ: Defaults to the environment of this process.
        warn: Receives warnings; the default writes them to stderr.
    """
    environ = os.environ if environ is None else environ
    environ.update(timeout_variables(seconds, environ))
    _timeouts.seconds = max(_timeouts.seconds, seconds)
    _timeouts.warn = warn
    if (module := sys.modules.get(C10D)) is not None:
        _timeouts.apply(module)
    else:
        after_import(C10D, lambda module: _timeouts.apply(module, is_new=True))


class _Timeouts:
    """The minimum timeout of this process, and its application to torch.distributed."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.warn: Callable[[str], None] = stderr.write_line
        self._wrapped = False

    def at_least(self, timeout: Any) -> Any:
        """Return `timeout` or the minimum, whichever is longer; return any value other than a timedelta unchanged."""
        from datetime import timedelta  # noqa: PLC0415 - torch has imported it by now

        minimum = timedelta(seconds=self.seconds)
        return minimum if isinstance(timeout, timedelta) and timeout < minimum else timeout

    def apply(self, module: ModuleType, *, is_new: bool = False) -> None:
        """Raise the timeouts of new process groups and, unless the module has just been imported, of existing ones."""
        try:
            if not self._wrapped:
                self._wrapped = True
                self._wrap(module)
            if not is_new:
                self._raise_groups(module)
        except Exception as error:  # noqa: BLE001 - a library's internals may change, and the job must continue
            self.warn(f"could not raise all torch.distributed timeouts: {type(error).__name__}: {error}")

    def _wrap(self, module: ModuleType) -> None:
        default = getattr(module, _DEFAULT, None)
        if default is not None:
            _replace(module, _DEFAULT, lambda *args: self.at_least(default(*args)))
        wrapped = [name for name in _WRAPPED if self._wrap_function(module, name)]
        if _GROUPS not in wrapped:
            self.warn("cannot raise the timeouts of process groups: unsupported version of torch")

    def _wrap_function(self, module: ModuleType, name: str) -> bool:
        """Raise a function's timeout argument and the timeout of its store; return False if it takes no timeout."""
        import functools  # noqa: PLC0415 - torch has imported them by now
        import inspect  # noqa: PLC0415

        function = getattr(module, name, None)
        parameters = inspect.signature(function).parameters if callable(function) else {}
        names = list(parameters)
        takes_kwargs = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
        if function is None or not ("timeout" in names or takes_kwargs):
            return False

        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            given = dict(zip(names, args, strict=False)) | kwargs
            if "timeout" in kwargs:
                kwargs["timeout"] = self.at_least(kwargs["timeout"])
            elif "timeout" in given:
                position = names.index("timeout")
                args = (*args[:position], self.at_least(args[position]), *args[position + 1 :])
            self._raise_store(given.get("store"))
            return function(*args, **kwargs)

        _replace(module, name, wrapper)
        return True

    def _raise_store(self, store: Any) -> None:
        """Raise the timeout of a group's store, which was set before the group was created."""
        timeout = getattr(store, "timeout", None)
        if timeout is not None and self.at_least(timeout) != timeout:
            store.set_timeout(self.at_least(timeout))

    def _raise_groups(self, module: ModuleType) -> None:
        """Raise the timeouts of existing groups; operations in progress keep theirs."""
        for group, (_, store) in list(module._world.pg_map.items()):  # noqa: SLF001 - torch has no public list of them
            for device in group._device_types:  # noqa: SLF001 - as above
                backend = group._get_backend(device)  # noqa: SLF001 - as above
                timeout: timedelta = backend.options._timeout  # noqa: SLF001 - as above
                if self.at_least(timeout) != timeout:
                    backend._set_default_timeout(self.at_least(timeout))  # noqa: SLF001 - as torch's _set_pg_timeout
            self._raise_store(store)


_timeouts = _Timeouts()


def _replace(module: ModuleType, name: str, replacement: Callable[..., Any]) -> None:
    """Replace a function in its module, and in every module of torch.distributed that has imported it."""
    function = getattr(module, name)
    package = C10D.rpartition(".")[0]
    importers = [found for key, found in list(sys.modules.items()) if key == package or key.startswith(f"{package}.")]
    for namespace in [module, *importers]:
        if getattr(namespace, "__dict__", {}).get(name) is function:
            setattr(namespace, name, replacement)
