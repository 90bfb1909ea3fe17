"""The code that torch.compile has generated in this process; nothing here imports torch, whose names are private."""

from __future__ import annotations

import sys
from types import CodeType
from typing import Any


def is_generated(code: CodeType) -> bool:
    """Return whether torch.compile has generated a code object."""
    return code in _generated()


def has_compiled_code() -> bool:
    """Return whether torch.compile has generated code that may be executed in place of functions."""
    return bool(getattr(_generated(), "seen", ()))


def _generated() -> Any:
    return getattr(sys.modules.get("torch._dynamo.convert_frame"), "output_codes", ())
