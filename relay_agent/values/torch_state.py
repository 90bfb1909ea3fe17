"""What torch keeps for each thread, for helper threads that read values for another thread, and the wait for a GPU.

torch does not pass this state on to new threads, so a helper thread takes it over: the current CUDA stream and device,
autocast, and whether gradients and inference mode are on. Streams do not wait for each other: an element that is read
in one stream may be older than what another stream is about to write. A helper thread therefore waits for the whole
device before the first operation on a tensor there, and reads nothing while a CUDA graph is captured, because either
would end the capture.

Nothing here imports torch or initializes CUDA.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from relay_agent.job.gevent_originals import threading

DEVICE_TYPES = ("cpu", "cuda")
"""For which autocast is taken over."""
METADATA = frozenset(
    [
        "__get__",
        "__set__",
        "__len__",
        "__hash__",
        "_nnz",
        "data_ptr",
        "detach",
        "dim",
        "element_size",
        "get_device",
        "is_complex",
        "is_conj",
        "is_contiguous",
        "is_floating_point",
        "is_neg",
        "is_pinned",
        "ndimension",
        "nelement",
        "numel",
        "qscheme",
        "size",
        "storage_offset",
        "stride",
        "type",
        "untyped_storage",
    ]
)
"""Names of torch's functions that read no element; `__get__` is the getter of every attribute, such as `shape`."""
CAPTURE = "elements on a GPU are not read during a CUDA graph capture, because this would end the capture"
"""The reason for which nothing is read during a capture."""


class NotRead(BaseException):
    """Elements on a GPU are not read, for the reason in the message.

    It is not an `Exception`, so that neither the code of the job nor pydevd catches it.
    """


class TorchState(NamedTuple):
    """What torch keeps for a thread."""

    has_grad: bool
    is_inference: bool
    autocast: tuple[tuple[str, Any], ...]
    """The device types with autocast, each with its dtype."""
    stream: Any
    """The current CUDA stream, which belongs to the current device; None if the process does not use CUDA."""


_stopped: dict[int, TorchState | None] = {}
"""By thread."""


def read_torch_state() -> TorchState | None:
    """Return the state of this thread; None without torch. This takes a few microseconds and waits for no device."""
    torch: Any = sys.modules.get("torch")
    if not hasattr(getattr(torch, "overrides", None), "TorchFunctionMode"):  # not imported, or older than torch 1.13
        return None
    with contextlib.suppress(Exception):  # another thread is importing torch
        stream = torch.cuda.current_stream() if torch.cuda.is_initialized() else None
        return TorchState(torch.is_grad_enabled(), torch.is_inference_mode_enabled(), _read_autocast(torch), stream)
    return None


def _read_autocast(torch: Any) -> tuple[tuple[str, Any], ...]:
    with contextlib.suppress(TypeError, AttributeError):  # before torch 2.4
        enabled = [name for name in DEVICE_TYPES if torch.is_autocast_enabled(name)]
        return tuple((name, torch.get_autocast_dtype(name)) for name in enabled)
    return ()


@contextlib.contextmanager
def untraced() -> Iterator[None]:
    """Leave what this thread executes in the block out of the graph that `torch.jit.trace` records."""
    torch: Any = sys.modules.get("torch._C")
    state = getattr(torch, "_get_tracing_state", lambda: None)()
    if state is not None:
        torch._set_tracing_state(None)  # noqa: SLF001 - only torch._C has it
    try:
        yield
    finally:
        if state is not None:
            torch._set_tracing_state(state)  # noqa: SLF001 - as above


@contextlib.contextmanager
def unseen() -> Iterator[None]:
    """Leave it also out of what modes and subclasses of the job see; only metadata can be read in the block."""
    torch: Any = sys.modules.get("torch._C")
    with untraced(), contextlib.ExitStack() as stack:
        for name in ("DisableTorchFunction", "_DisableTorchDispatch"):
            stack.enter_context(getattr(torch, name, contextlib.nullcontext)())
        yield


@contextlib.contextmanager
def remembered_while_stopped() -> Iterator[None]:
    """Keep this thread's state for `as_stopped_thread`; this thread is stopped in the block."""
    ident = threading.get_ident()
    earlier = _stopped.get(ident)  # an expression that is evaluated at a stop can stop, too
    _stopped[ident] = read_torch_state()
    try:
        yield
    finally:
        _stopped[ident] = earlier


@contextlib.contextmanager
def as_stopped_thread(ident: int | None) -> Iterator[None]:
    """Execute the block with the state of a thread if it is stopped.

    The state of a running thread is unknown, except for its device if the process uses only one.
    """
    state = _stopped.get(ident or 0)
    with _with_state(state), _only_device() if state is None else contextlib.nullcontext():
        yield


def _only_device() -> contextlib.AbstractContextManager[object]:
    """Make the GPU on which this process has memory the current one, if there is exactly one; no GPU is asked."""
    cuda: Any = sys.modules.get("torch.cuda")
    with contextlib.suppress(Exception):  # another thread is importing torch
        if cuda is not None and cuda.is_initialized():
            used = [device for device in range(cuda.device_count()) if cuda.memory_reserved(device)]
            if len(used) == 1:
                return cuda.device(used[0])  # type: ignore[no-any-return] # a context manager
    return contextlib.nullcontext()


@contextlib.contextmanager
def taken_over(state: TorchState | None) -> Iterator[None]:
    """Execute the block with the state of another thread, and wait for a device before reading values from it."""
    with _with_state(state), contextlib.ExitStack() as stack:
        if state is not None and state.stream is not None:
            stack.enter_context(_waiting_mode()())
        yield


@contextlib.contextmanager
def _with_state(state: TorchState | None) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        if state is not None:
            torch: Any = sys.modules["torch"]
            if state.stream is not None:
                stack.enter_context(torch.cuda.stream(state.stream))  # sets the device, too
            if state.is_inference:
                stack.enter_context(torch.inference_mode())
            stack.enter_context(torch.set_grad_enabled(state.has_grad))
            for kind, dtype in state.autocast:
                _enable_autocast(torch, kind, dtype, stack)
        yield


def _enable_autocast(torch: Any, kind: str, dtype: Any, stack: contextlib.ExitStack) -> None:
    """Enable autocast until the stack ends.

    `torch.autocast` would clear the cache of converted weights at its end, and all threads share that cache.
    """
    stack.callback(torch.set_autocast_cache_enabled, torch.is_autocast_cache_enabled())
    stack.callback(torch.set_autocast_dtype, kind, torch.get_autocast_dtype(kind))
    stack.callback(torch.set_autocast_enabled, kind, torch.is_autocast_enabled(kind))
    torch.set_autocast_cache_enabled(False)
    torch.set_autocast_dtype(kind, dtype)
    torch.set_autocast_enabled(kind, True)


@functools.cache
def _waiting_mode() -> Any:
    """Return the class of the mode in which a thread waits for a device before its first operation there."""
    torch: Any = sys.modules["torch"]

    class WaitingMode(torch.overrides.TorchFunctionMode):  # type: ignore[misc] # its base is of type Any
        """torch calls this mode in its thread before each function, except in the functions that the mode calls."""

        def __init__(self) -> None:
            super().__init__()
            self._ready: set[Any] = set()

        def __torch_function__(self, function: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if getattr(function, "__name__", "") not in METADATA:
                values = (*args, *(kwargs or {}).values())
                for device in {tensor.device for tensor in _tensors(torch, values)} - self._ready:
                    if device.type == "cuda":
                        _wait_for(torch.cuda, device)
                    self._ready.add(device)
            return function(*args, **(kwargs or {}))

    return WaitingMode


def _tensors(torch: Any, values: Iterable[Any]) -> Iterator[Any]:
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (list, tuple)):  # of `torch.stack`
            yield from (part for part in value if isinstance(part, torch.Tensor))


def _wait_for(cuda: Any, device: Any) -> None:
    """Wait until a device has finished everything in all of its streams.

    Raises:
        NotRead: a CUDA graph is being captured, or the device has failed.
    """
    try:
        if _is_capturing(cuda):
            raise NotRead(CAPTURE)
        cuda.synchronize(device)
    except RuntimeError as error:
        reason = str(error).partition("\n")[0]
        raise NotRead(f"elements on {device} cannot be read: {reason}") from error


def _is_capturing(cuda: Any) -> bool:
    """Whether the stream of this thread or of a stopped thread is being captured, or the one that torch captures."""
    if cuda.is_current_stream_capturing():
        return True
    streams = [state.stream for state in list(_stopped.values()) if state is not None]
    for stream in (getattr(cuda.graph, "default_capture_stream", None), *streams):
        if stream is not None:
            with cuda.stream(stream):
                if cuda.is_current_stream_capturing():
                    return True
    return False
