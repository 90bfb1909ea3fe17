"""Raises the timeouts of collective communication, because a rank that is held delays its peers.

To its peers, a rank at a breakpoint looks dead: torch.distributed times out after 10 minutes (NCCL) or 30 minutes
(gloo), or after the timeout that the job sets. The timeout of an operation is fixed when a peer starts it.

    --debug-timeouts        when the timeouts are raised
    (not given)             while a rank of the job is held: a debugger is attached to it, it waits for one, or it has
                            crashed. The agent of each node requests this from its processes, and restores the timeouts
                            after the last hold (`relay_core.agent_api.announcement.AgentInfo.held_jobs`)
    TIME                    from the start of each rank to its end
    off                     never

In a job that nobody debugs, the default changes nothing, so a real hang is found as early as without relay-debug. Until
a rank is held, there is only an import hook. Raising the timeouts of every debug run at its start would be simpler, but
such a job would hang for a day instead of 10 minutes. Raising them when a rank stops would be too late: peers may have
started their next operation by then, while an attachment precedes the first stop by several messages. Operations that
are in progress at an attachment keep their timeouts, and those that were started during the hold keep theirs after it.

With TIME, limits that are read from environment variables are raised, too. They cannot be changed later, so the default
leaves them as they are:

    TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC     480 s       torch: c10d/ProcessGroupNCCL.hpp
    DEEPSPEED_TIMEOUT                    30 min      deepspeed/constants.py; in minutes
    HOROVOD_GLOO_TIMEOUT_SECONDS         30 s        horovod/common/gloo/gloo_context.cc
    HOROVOD_STALL_SHUTDOWN_TIME_SECONDS  off         horovod/common/stall_inspector.h; raised only if it is set

The heartbeat is that of NCCL's watchdog, a thread without Python code, which keeps running while a debugger has stopped
the Python threads: it finds a stuck watchdog, not a slow operation. DeepSpeed passes its limit to torch.distributed,
where it is raised like any other. Only Horovod needs TIME.

The other limits are arguments inside torch.distributed. This module never imports torch. Functions of the module that
the job has imported are wrapped, so that process groups, their stores and barriers get at least the requested timeout,
instead of the default or a shorter one; a longer one is kept. The timeouts of existing groups are changed.

The timeouts were verified with gloo (torch 2.13) and with NCCL (torch 2.11, NCCL 2.28.9, one H200): ranks with a
timeout of 20 s survived a peer that was held for 50 to 65 s, also if the timeouts of existing groups were raised.

This module does not cover the exit barrier of torchrun (5 minutes between nodes), the `timeout` of a TCPStore that the
job creates, torch.distributed.rpc, or external supervision of the job, such as liveness probes and wall-clock limits.
By default, it does not cover processes without an agent either, such as children of multiprocessing.
"""

from __future__ import annotations

import contextlib
import math
import os
import sys
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

from relay_agent.job import stderr
from relay_agent.job.import_hook import after_import
from relay_agent.settings.model import DEFAULT_TIMEOUTS

if TYPE_CHECKING:
    from datetime import timedelta
    from types import ModuleType

C10D = "torch.distributed.distributed_c10d"

_GROUPS = "_new_process_group_helper"
"""Every process group is created by this function, which has no default timeout."""
_DEFAULT = "_get_default_timeout"
_SETTER = "_set_pg_timeout"
_WRAPPED = (_GROUPS, "rendezvous", "_store_based_barrier", _SETTER, "split_group", "barrier", "monitored_barrier")
"""Functions of `C10D` with a `timeout` argument; an older torch may not have all of them."""
_CHANGING = (_GROUPS, _SETTER, "split_group")
"""Functions that create process groups or change their timeouts."""


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


def raise_timeouts(seconds: float = DEFAULT_TIMEOUTS) -> None:
    """Raise the timeouts of collective operations in this process and its children to at least `seconds`.

    A timeout that cannot be raised causes a warning, never an error. A second call can raise the timeouts further.

    Args:
        seconds: Minimum timeout of each collective operation.
    """
    os.environ.update(timeout_variables(seconds, os.environ))
    _timeouts.seconds = max(_timeouts.seconds, seconds)
    _timeouts.is_lasting = True
    prepare_for_holds()
    _timeouts.apply()


def prepare_for_holds() -> None:
    """Find torch.distributed when the job imports it, for `raise_while_held`; until then, nothing is changed."""
    after_import(C10D, _timeouts.imported)


def raise_while_held(*, is_held: bool) -> None:
    """Raise the timeouts of this process while a rank of the job is held, and then restore them.

    This is for threads other than those of the job. It has no effect after `raise_timeouts`.
    """
    if not _timeouts.is_lasting:
        _timeouts.hold(is_held=is_held)


def peer_timeout() -> float | None:
    """Return the shortest timeout of this process's groups in seconds; None if it is unknown or was raised.

    Usually, all ranks of a group have the same timeout.
    """
    found = _timeouts.shortest()
    return None if found is None or found >= DEFAULT_TIMEOUTS else found


class _Timeouts:
    """The minimum timeout of this process, and its application to torch.distributed."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.is_lasting = False
        """Whether the timeouts are never restored."""
        self._module: ModuleType | None = None
        """`C10D`, once it is complete."""
        self._wrapped = False
        self._raised: timedelta | None = None
        """The timeout to which groups were raised for a hold."""
        self._groups: MutableMapping[Any, dict[Any, timedelta]] = WeakKeyDictionary()
        """For each raised group, the timeout of each of its devices before the hold."""
        self._store: timedelta | None = None
        """The timeout of the groups' stores before the hold; all of them usually share one connection."""

    def at_least(self, timeout: Any) -> Any:
        """Return `timeout` or the minimum, whichever is longer; return any value other than a timedelta unchanged."""
        from datetime import timedelta  # noqa: PLC0415 - torch has imported it by now

        minimum = timedelta(seconds=self.seconds)
        return minimum if isinstance(timeout, timedelta) and timeout < minimum else timeout

    def imported(self, module: ModuleType) -> None:
        """Remember the module, which has just been imported or existed before."""
        self._module = module
        if self.seconds:
            self._attempt(self._wrap, module, "raise")

    def apply(self) -> None:
        """Raise the timeouts of new process groups and of existing ones, if any are to be raised."""
        if self.seconds and self._module is not None:
            self._attempt(self._apply, self._module, "raise")

    def hold(self, *, is_held: bool) -> None:
        """Raise the timeouts because a rank is held, or restore them."""
        from _datetime import timedelta  # type: ignore[import-not-found]  # noqa: PLC0415 - a job may have datetime.py

        self.seconds = DEFAULT_TIMEOUTS if is_held else 0.0
        if is_held:
            self._raised = timedelta(seconds=self.seconds)
            self.apply()
        elif self._module is not None:
            self._attempt(self._restore, self._module, "restore")

    def shortest(self) -> float | None:
        """Return the shortest timeout of all groups in seconds; None if it is unknown."""
        found: list[float] = []

        def collect(module: ModuleType) -> None:
            for group in _groups(module):
                timeouts = [_timeout_of(group._get_backend(device)) for device in group._device_types]  # noqa: SLF001 - as below
                found.extend(timeout.total_seconds() for timeout in timeouts if timeout is not None)

        if self._module is not None:
            self._attempt(collect, self._module, "read")
        return min(found, default=None)

    def _attempt(self, change: Callable[[ModuleType], None], module: ModuleType, verb: str) -> None:
        try:
            change(module)
        except Exception as error:  # noqa: BLE001 - a library's internals may change, and the job must continue
            stderr.write_line(f"could not {verb} all torch.distributed timeouts: {type(error).__name__}: {error}")

    def _apply(self, module: ModuleType) -> None:
        self._wrap(module)
        self._raise_groups(module)

    def _wrap(self, module: ModuleType) -> None:
        if self._wrapped:
            return
        self._wrapped = True
        default = getattr(module, _DEFAULT, None)
        if default is not None and self.is_lasting:  # during a hold, the group's own timeout must be known
            _replace(module, _DEFAULT, lambda *args: self.at_least(default(*args)))
        wrapped = [name for name in _WRAPPED if self._wrap_function(module, name)]
        if _GROUPS not in wrapped:
            stderr.write_line("cannot raise the timeouts of process groups: unsupported version of torch")

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
            requested = given.get("timeout")
            raised = requested if name == _SETTER and not self.is_lasting else self.at_least(requested)
            if "timeout" in kwargs:
                kwargs["timeout"] = raised
            elif "timeout" in given:
                position = names.index("timeout")
                args = (*args[:position], raised, *args[position + 1 :])
            self._raise_store(given.get("store"))
            if self._raised is None or name not in _CHANGING:
                return function(*args, **kwargs)
            with self._watching(module, None if raised == requested else requested):
                return function(*args, **kwargs)

        _replace(module, name, wrapper)
        return True

    @contextlib.contextmanager
    def _watching(self, module: ModuleType, requested: timedelta | None) -> Iterator[None]:
        """Remember the timeouts of groups that the job creates or changes in a block, and raise or restore them.

        Args:
            module: `C10D`.
            requested: The timeout that new groups have after the hold; None if theirs was not raised.
        """
        existing: list[Any] = []
        self._attempt(lambda module: existing.extend(_groups(module)), module, "raise")
        yield

        def update(module: ModuleType) -> None:
            for group in _groups(module):
                if group not in existing and requested is not None:
                    self._groups[group] = dict.fromkeys(group._device_types, requested)  # noqa: SLF001 - as below
            self._raise_groups(module) if self.seconds else self._restore(module)

        self._attempt(update, module, "raise")

    def _raise_store(self, store: Any) -> None:
        """Raise the timeout of a group's store, which was set before the group was created."""
        timeout = getattr(store, "timeout", None)
        if timeout is not None and self.at_least(timeout) != timeout:
            self._store = timeout
            store.set_timeout(self.at_least(timeout))

    def _raise_groups(self, module: ModuleType) -> None:
        """Raise the timeouts of existing groups; operations in progress keep theirs."""
        for group, (_, store) in _groups(module).items():
            before = self._groups.setdefault(group, {})
            for device in group._device_types:  # noqa: SLF001 - torch has no public list of them
                backend = group._get_backend(device)  # noqa: SLF001 - as above
                timeout = _timeout_of(backend)
                if timeout is not None and self.at_least(timeout) != timeout:
                    before[device] = timeout
                    backend._set_default_timeout(self.at_least(timeout))  # noqa: SLF001 - as torch's _set_pg_timeout
            self._raise_store(store)

    def _restore(self, module: ModuleType) -> None:
        """Restore the timeouts, except those that the job has changed since they were raised."""
        for group, (_, store) in _groups(module).items():
            for device, timeout in self._groups.pop(group, {}).items():
                backend = group._get_backend(device)  # noqa: SLF001 - as above
                if _timeout_of(backend) == self._raised:
                    backend._set_default_timeout(timeout)  # noqa: SLF001 - as above
            if self._store is not None and store.timeout == self._raised:
                store.set_timeout(self._store)


_timeouts = _Timeouts()


def _groups(module: ModuleType) -> dict[Any, Any]:
    """Return the name of the backend and the store of each process group."""
    return dict(module._world.pg_map)  # noqa: SLF001 - torch has no public list of them


def _timeout_of(backend: Any) -> timedelta | None:
    """Return the timeout of a backend's operations; None if it has none, as those of MPI."""
    try:
        found: timedelta = backend.options._timeout  # noqa: SLF001 - as `_set_default_timeout`
    except (AttributeError, RuntimeError):  # torch raises RuntimeError for a backend that does not implement options
        return None
    return found


def _replace(module: ModuleType, name: str, replacement: Callable[..., Any]) -> None:
    """Replace a function in its module, and in every module of torch.distributed that has imported it."""
    function = getattr(module, name)
    package = C10D.rpartition(".")[0]
    importers = [found for key, found in list(sys.modules.items()) if key == package or key.startswith(f"{package}.")]
    for namespace in [module, *importers]:
        if getattr(namespace, "__dict__", {}).get(name) is function:
            setattr(namespace, name, replacement)
