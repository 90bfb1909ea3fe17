"""Patch for pydevd's display of values: tensors, arrays and tables by type and shape, other values with a deadline.

In the stopped thread, pydevd calls `repr` for each value in a frame. For a tensor, the result is a page of numbers that
must be computed and copied from the device; if the device hangs, the debugger hangs too. With this patch, such values
are described by `relay_agent.values.presentation`, and every other `repr` that may run the job's code has a deadline.
The same deadline applies to each attribute of an expanded object that the job's code computes, such as a property.

The full text remains available when the user requests a single value: in the Debug Console and for the clipboard.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Iterator
from typing import Any

from relay_agent.debugpy_internals.table import SHOWING
from relay_agent.values.deadline import FULL_DEADLINE, REPR_DEADLINE, within_deadline
from relay_agent.values.presentation import ShownText, describe, find_presenter, on_registration

FULL_CONTEXTS = frozenset({"repl", "clipboard"})
"""Contexts of `evaluate` in which the user has requested a single value and wants to see it in full."""
_OF_CONTEXT = "relay_debug_context"
"""Attribute of a `SafeRepr`: the context for which it is used."""

_SIMPLE = frozenset(
    {int, float, complex, bool, type(None), str, bytes, type, range, types.FunctionType, types.ModuleType}
)
"""Types whose `repr` runs none of the job's code."""
_STORED = frozenset(
    {
        *(types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.MemberDescriptorType),
        *(types.MethodDescriptorType, types.ClassMethodDescriptorType, types.WrapperDescriptorType),
        *(classmethod, staticmethod),
    }
)
"""Types of descriptors that return an attribute without computing it."""
_MISSING = object()
MAX_ERROR = 200
"""Maximum number of characters of the error shown for an attribute."""


def install() -> None:
    """Patch pydevd in this process and its forked children."""
    from _pydevd_bundle import pydevd_suspended_frames, pydevd_xml  # noqa: PLC0415 - in debug runs only, as the rest
    from _pydevd_bundle.pydevd_extension_api import StrPresentationProvider  # noqa: PLC0415
    from _pydevd_bundle.pydevd_extension_utils import extensions_of_type  # noqa: PLC0415
    from _pydevd_bundle.pydevd_resolver import DefaultResolver  # noqa: PLC0415
    from _pydevd_bundle.pydevd_safe_repr import SafeRepr  # noqa: PLC0415

    providers = extensions_of_type(StrPresentationProvider)
    providers.insert(0, _Provider(providers))
    forget = pydevd_xml._TYPE_RESOLVE_HANDLER._type_to_str_provider_cache.clear  # noqa: SLF001 - as in the table
    forget()
    on_registration.append(forget)
    pydevd_suspended_frames.get_variable_details = _remembering_context(pydevd_suspended_frames.get_variable_details)
    SafeRepr._repr_obj = _bounded(SafeRepr._repr_obj)  # noqa: SLF001 - as above
    DefaultResolver._get_py_dictionary = _reading_in_time(DefaultResolver._get_py_dictionary)  # noqa: SLF001 - as above


class _Provider:
    """The provider from which pydevd requests the text of a value.

    Args:
        providers: All providers, this one first. The full text comes from the provider that pydevd would otherwise use.
    """

    def __init__(self, providers: list[Any]) -> None:
        self._providers = providers

    def can_provide(self, kind: type, name: str) -> bool:  # noqa: ARG002 - as pydevd calls it
        """Return whether values of this type are described; pydevd calls this once for each type."""
        return not SHOWING.is_off and find_presenter(kind) is not None

    def get_str(self, value: object) -> str | None:
        """Return the description, or None to make pydevd use its own."""
        with SHOWING.guarded():
            return describe(value)
        return None

    def get_str_in_context(self, value: object, context: str) -> str | None:
        """Return the description or the full text, depending on the purpose of the text."""
        if context not in FULL_CONTEXTS:
            return self.get_str(value)
        kind = type(value)
        others = (provider for provider in self._providers[1:] if provider.can_provide(kind, kind.__name__))
        other = next(others, None)
        if other is None:
            return None
        return within_deadline(kind, lambda: str(other.get_str_in_context(value, context)), seconds=FULL_DEADLINE)


def _remembering_context(get_details: Callable[..., Any]) -> Callable[..., Any]:
    """Return a `get_variable_details` that passes the context to its `SafeRepr`."""

    def details(value: object, *arguments: Any, to_string: Any = None, context: str | None = None, **named: Any) -> Any:
        if to_string is not None:
            setattr(to_string, _OF_CONTEXT, context)
        return get_details(value, *arguments, to_string=to_string, context=context, **named)

    return details


def _bounded(repr_obj: Callable[..., Iterator[str]]) -> Callable[..., Iterator[str]]:
    """Return `SafeRepr._repr_obj`, which calls `repr` and shortens its result, with a deadline."""

    def bounded(safe_repr: Any, value: object, level: int, *limits: int) -> Iterator[str]:
        kind = type(value)
        if kind in _SIMPLE or kind.__repr__ is object.__repr__ or SHOWING.is_off:
            return repr_obj(safe_repr, value, level, *limits)
        with SHOWING.guarded():
            if kind is types.MethodType:  # its `repr` contains that of the object
                return iter((f"<bound method {_name(value)}>",))
            is_full = level == 0 and getattr(safe_repr, _OF_CONTEXT, None) in FULL_CONTEXTS
            text = None if is_full else describe(value)
            if text is None:
                seconds = FULL_DEADLINE if is_full else REPR_DEADLINE
                compute = lambda: "".join(repr_obj(safe_repr, value, level, *limits))  # noqa: E731 - it needs no name
                text = within_deadline(kind, compute, seconds=seconds)
            return iter((text,))
        return repr_obj(safe_repr, value, level, *limits)

    return bounded


def _name(method: Any) -> str:
    function = method.__func__
    return str(function.__qualname__ if isinstance(function, types.FunctionType) else type(function).__name__)


def _reading_in_time(read: Callable[..., Any]) -> Callable[..., Any]:
    """Return `DefaultResolver._get_py_dictionary`, which reads the attributes of an object, with deadlines."""

    def read_in_time(resolver: Any, value: object, names: Any = None, used___dict__: bool = False) -> Any:
        if SHOWING.is_off:
            return read(resolver, value, names, used___dict__)
        with SHOWING.guarded():
            if not names:
                names, used___dict__ = resolver.get_names(value)
            if not used___dict__:
                found = ((name if type(name) is str else repr(name), _attribute(value, name)) for name in names)
                return {name: attribute for name, attribute in found if attribute is not _MISSING}, False
        return read(resolver, value, names, used___dict__)

    return read_in_time


def _attribute(value: object, name: str) -> object:
    """Return an attribute, the reason why it was not read, or `_MISSING` if there is none."""
    try:
        if not _is_computed(value, name):
            return getattr(value, name)
        found = within_deadline((type(value), name), lambda: (getattr(value, name),), what=name)
    except AttributeError:
        return _MISSING
    except Exception as error:  # noqa: BLE001 - the job's code may raise anything
        return ShownText(f"<{type(error).__name__}: {str(error)[:MAX_ERROR]}>")
    return ShownText(found) if isinstance(found, str) else found[0]


def _is_computed(value: object, name: str) -> bool:
    """Whether reading an attribute may execute code of the job or of a library; finding this out does not."""
    kind = type(value)
    if isinstance(value, type) or (name.startswith("__") and name.endswith("__")):
        return False
    if kind.__getattribute__ not in {object.__getattribute__, types.ModuleType.__getattribute__}:
        return True
    static = inspect.getattr_static(value, name, _MISSING)
    return static is _MISSING or (type(static) not in _STORED and hasattr(type(static), "__get__"))
