"""The code that torch.compile has generated in this process; nothing here imports torch, whose names are private."""

from __future__ import annotations

import contextlib
import sys
from types import CodeType
from typing import Any

from relay_agent.job.import_hook import after_import


def is_generated(code: CodeType) -> bool:
    """Return whether torch.compile has generated a code object."""
    return code in _generated()


def has_compiled_code() -> bool:
    """Return whether torch.compile has generated code that may be executed in place of functions."""
    return bool(getattr(_generated(), "seen", ()))


def allow_constants(kind: type) -> None:
    """Make torch.compile accept the objects of a type as constants of code, also if torch is imported later.

    A call of such an object splits the graph. Otherwise, torch would raise AssertionError in the job.
    """

    def add(utils: Any) -> None:
        with contextlib.suppress(AttributeError):  # a private name, which another version of torch may not have
            utils.common_constant_types.add(kind)

    after_import("torch._dynamo.utils", add)


def _generated() -> Any:
    return getattr(sys.modules.get("torch._dynamo.convert_frame"), "output_codes", ())
