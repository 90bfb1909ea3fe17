"""Raises the timeouts of collective communication, because a rank that is held keeps all of its peers waiting.

A rank at a breakpoint is not dead, but to its peers it looks so: torch.distributed gives up after 10 minutes (NCCL) or
30 (gloo), or whatever the job's own code says. What happens is decided by the peers, with the timeout that their
operation was started with; so this belongs at the start of every rank, not to the moment when one of them stops.

Some limits are read from environment variables:

    TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC     480 s       torch: c10d/ProcessGroupNCCL.hpp
    DEEPSPEED_TIMEOUT                    30 min      deepspeed/constants.py; in minutes
    HOROVOD_GLOO_TIMEOUT_SECONDS         30 s        horovod/common/gloo/gloo_context.cc
    HOROVOD_STALL_SHUTDOWN_TIME_SECONDS  off         horovod/common/stall_inspector.h; raised only where it is set

The others are arguments inside torch.distributed. An import hook waits until the job loads that module, torch itself is
never imported from here, and wraps the functions that hand timeouts on: process groups, their stores and barriers get
at least this one, whether they were to have the default or a shorter one. A longer one stays.

Verified with gloo (torch 2.13). Unverified with NCCL, for want of a GPU: by its source (ProcessGroupNCCL.hpp) the
watchdog compares an operation's age with the same timeout of its group, and the monitor obeys the variable above.

Out of reach are the exit barrier of torchrun (5 minutes from one node to the other), the `timeout` of a TCPStore that
the job's own code makes, torch.distributed.rpc, and whoever watches the job from outside, such as liveness probes and
wall-clock limits.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Mapping, MutableMapping
from typing import TYPE_CHECKING, Any, NamedTuple

from relay_agent import stderr
from relay_agent.settings.model import DEFAULT_TIMEOUTS

if TYPE_CHECKING:
    from datetime import timedelta
    from importlib.machinery import ModuleSpec
    from types import ModuleType

__all__ = ["raise_timeouts", "timeout_variables"]

C10D = "torch.distributed.distributed_c10d"

_GROUPS = "_new_process_group_helper"
"""Every way to a process group ends in this function, which has no default timeout."""
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
"""Functions of that module with an argument `timeout`; an older torch need not have all of them."""


class _Variable(NamedTuple):
    name: str
    unit: int = 1
    """Seconds."""
    has_default: bool = True
    """Whether there is a limit where the variable is not set."""


_VARIABLES = (
    _Variable("TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC"),
    _Variable("DEEPSPEED_TIMEOUT", unit=60),
    _Variable("HOROVOD_GLOO_TIMEOUT_SECONDS"),
    _Variable("HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", has_default=False),
)


def timeout_variables(seconds: float, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables to set so that no limit of theirs is below `seconds`.

    A longer limit is kept, and so is a text that is no number: who reads it will complain.
    """
    changes = {}
    for variable in _VARIABLES:
        text = environ.get(variable.name, "")
        wanted = math.ceil(seconds / variable.unit)
        if (not text and variable.has_default) or (text.isdecimal() and _limits(text, variable, wanted)):
            changes[variable.name] = str(wanted)
    return changes


def _limits(text: str, variable: _Variable, wanted: int) -> bool:
    """Whether a set variable means less than `wanted`; 0 is no limit where none is the default."""
    return int(text) < wanted and (variable.has_default or int(text) > 0)


def raise_timeouts(
    seconds: float = DEFAULT_TIMEOUTS,
    *,
    environ: MutableMapping[str, str] | None = None,
    say: Callable[[str], None] = stderr.say,
) -> None:
    """Let this process, and those that it starts, wait for a held rank for at least `seconds`.

    What cannot be raised is told, and never an error. A second call can raise further.

    Args:
        seconds: Of patience in each collective operation.
        environ: Defaults to the environment of this process.
        say: Tells the user a sentence; defaults to a line on stderr.
    """
    environ = os.environ if environ is None else environ
    environ.update(timeout_variables(seconds, environ))
    _patience.seconds = max(_patience.seconds, seconds)
    _patience.say = say
    module = sys.modules.get(C10D)
    if module is not None:
        _patience.give_to(module)
    elif not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


class _Patience:
    """What this process's torch.distributed has been given."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.say: Callable[[str], None] = stderr.say
        self._given = False

    def at_least(self, timeout: Any) -> Any:
        """Return a timeout, or this patience if that is longer; what is no duration stays what it is."""
        from datetime import timedelta  # noqa: PLC0415 - torch has imported it by now

        patience = timedelta(seconds=self.seconds)
        return patience if isinstance(timeout, timedelta) and timeout < patience else timeout

    def give_to(self, module: ModuleType, *, is_new: bool = False) -> None:
        """Raise what the module will make and, unless it has only just come, what it has."""
        try:
            if not self._given:
                self._given = True
                self._wrap(module)
            if not is_new:
                self._raise_groups(module)
        except Exception as error:  # noqa: BLE001 - internals of a library: they change, and the job must go on
            self.say(f"not every timeout of torch.distributed could be raised: {type(error).__name__}: {error}")

    def _wrap(self, module: ModuleType) -> None:
        default = getattr(module, _DEFAULT, None)
        if default is not None:
            _replace(module, _DEFAULT, lambda *args: self.at_least(default(*args)))
        wrapped = [name for name in _WRAPPED if self._wrap_function(module, name)]
        if _GROUPS not in wrapped:
            self.say("timeouts of process groups could not be raised: this torch makes them in another way")

    def _wrap_function(self, module: ModuleType, name: str) -> bool:
        """Let a function have a longer timeout, for itself and for the store that it uses; say whether that is done."""
        import functools  # noqa: PLC0415 - torch has imported them by now
        import inspect  # noqa: PLC0415

        function = getattr(module, name, None)
        parameters = inspect.signature(function).parameters if callable(function) else {}
        names = list(parameters)
        takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
        if function is None or not ("timeout" in names or takes_any):
            return False

        @functools.wraps(function)
        def patient(*args: Any, **kwargs: Any) -> Any:
            given = dict(zip(names, args, strict=False)) | kwargs
            if "timeout" in kwargs:
                kwargs["timeout"] = self.at_least(kwargs["timeout"])
            elif "timeout" in given:
                position = names.index("timeout")
                args = (*args[:position], self.at_least(args[position]), *args[position + 1 :])
            self._raise_store(given.get("store"))
            return function(*args, **kwargs)

        _replace(module, name, patient)
        return True

    def _raise_store(self, store: Any) -> None:
        """A group's store was given the group's timeout before the group was made."""
        timeout = getattr(store, "timeout", None)
        if timeout is not None and self.at_least(timeout) != timeout:
            store.set_timeout(self.at_least(timeout))

    def _raise_groups(self, module: ModuleType) -> None:
        """Raise the groups that exist already; operations under way keep what they were started with."""
        for group, (_, store) in list(module._world.pg_map.items()):  # noqa: SLF001 - there is no public list
            for device in group._device_types:  # noqa: SLF001 - as above
                backend = group._get_backend(device)  # noqa: SLF001 - as above
                timeout: timedelta = backend.options._timeout  # noqa: SLF001 - as above
                if self.at_least(timeout) != timeout:
                    backend._set_default_timeout(self.at_least(timeout))  # noqa: SLF001 - as torch's _set_pg_timeout
            self._raise_store(store)


_patience = _Patience()


def _replace(module: ModuleType, name: str, by: Callable[..., Any]) -> None:
    """Put another function in one's place, also where torch.distributed has imported it already."""
    function = getattr(module, name)
    package = C10D.rpartition(".")[0]
    homes = [home for key, home in list(sys.modules.items()) if key == package or key.startswith(f"{package}.")]
    for home in [module, *homes]:
        if getattr(home, "__dict__", {}).get(name) is function:
            setattr(home, name, by)


class _Finder:
    """Stands first among the finders, and sees torch's module come."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Return the others' answer for that one module, with a loader that tells us when it is there."""
        if name != C10D:
            return None
        for finder in sys.meta_path:
            find = None if finder is self else getattr(finder, "find_spec", None)
            spec: ModuleSpec | None = find(name, path, target) if find is not None else None
            if spec is not None:
                self._watch(spec.loader)
                return spec
        return None

    def _watch(self, loader: Any) -> None:
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            del loader.exec_module
            if self in sys.meta_path:
                sys.meta_path.remove(self)
            _patience.give_to(module, is_new=True)

        loader.exec_module = exec_module
