"""Selects the values that are shown by a description instead of their `repr`.

Such a description comes from `kinds`, or from a function that the job has registered.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from relay_agent.values.kinds import KINDS, describe_array
from relay_agent.values.slow import within_deadline

__all__ = ["Presenter", "describe", "find_kind", "find_presenter", "on_registration", "present"]

Present = Callable[[Any], str]
MAX_TEXT = 1000
"""Maximum number of characters in one text: a line in an editor's variables view."""

_registered: dict[type | str, Present] = {}
_on_registration: list[Callable[[], None]] = []


class Presenter(NamedTuple):
    """A function that describes values of a type."""

    present: Present
    is_fast: bool
    """True if the function only reads metadata of a known library; other code may take any amount of time."""


def present(kind: type | str, function: Present) -> None:
    """Show values of a type as the text that a function returns.

    Args:
        kind: A type, or its full name, such as "mylib.batch.Batch"; the type need not be imported. Subclasses are
            included.
        function: Called with the value, in a helper thread with a deadline.
    """
    _registered[kind] = function
    for notify in _on_registration:
        notify()


def on_registration(notify: Callable[[], None]) -> None:
    """Call a function after each registration."""
    _on_registration.append(notify)


def find_presenter(kind: type) -> Presenter | None:
    """Return the presenter for values of a type, or None if they are shown by their `repr`.

    Arrays of libraries that are not in `KINDS` are recognized by their attributes.
    """
    for base in kind.__mro__:
        name = f"{base.__module__}.{base.__qualname__}"
        found = _registered.get(base) or _registered.get(name)
        if found is not None:
            return Presenter(found, is_fast=False)
        known = KINDS.get((_package(base), base.__name__))
        if known is not None:
            return Presenter(known, is_fast=_package(kind) == _package(base) and not _counts(base))
    if (
        hasattr(kind, "shape") and hasattr(kind, "dtype") and _package(kind) != "numpy"
    ):  # the library's scalars have these attributes too
        return Presenter(describe_array, is_fast=False)
    return None


def find_kind(kind: type) -> tuple[str, str] | None:
    """Return the package and name in `KINDS` of a type or its nearest base, or None."""
    names = ((_package(base), base.__name__) for base in kind.__mro__)
    return next((name for name in names if name in KINDS), None)


def describe(value: object) -> str | None:
    """Return the text for a value, or None if the value is shown by its `repr` or describing it failed."""
    presenter = find_presenter(type(value))
    if presenter is None:
        return None
    try:
        if presenter.is_fast:
            text = presenter.present(value)
        else:
            text = within_deadline(type(value), lambda: str(presenter.present(value)), what="its description")
    except Exception:  # noqa: BLE001 - the code of a job or of a library's new version
        return None
    return text if len(text) <= MAX_TEXT else f"{text[: MAX_TEXT - 3]}..."


def _package(kind: type) -> str:
    return str(kind.__module__).partition(".")[0]


def _counts(kind: type) -> bool:
    """Whether describing a value takes longer if the value is larger."""
    return kind.__name__ == "Module"
