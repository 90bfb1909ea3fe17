"""The constants in the bytecode that an import has cached: what a file assigned before it was edited.

The cache may be older or newer than the text that the process has loaded, so a caller has to compare the cached values
with those of the process.
"""

from __future__ import annotations

import dis
import inspect
import marshal
from importlib.util import MAGIC_NUMBER
from pathlib import Path
from types import CodeType

from relay_agent.push.new_file import is_immutable, qualified_codes

__all__ = ["cached_constants", "constants_of"]

HEADER = 16
"""Bytes before the code: the magic number of the version, flags, and time and size of the source (PEP 552)."""


def cached_constants(path: str) -> dict[str, object]:
    """Return the constants in a .pyc file as `constants_of` does; {} if it cannot be read.

    Args:
        path: `__spec__.cached` of a module; "" if it has none.
    """
    try:
        data = Path(path).read_bytes() if path else b""
        code = marshal.loads(data[HEADER:]) if data.startswith(MAGIC_NUMBER) else None  # noqa: S302 - as an import does
    except (OSError, ValueError, EOFError, TypeError):
        return {}
    return constants_of(code) if isinstance(code, CodeType) else {}


def constants_of(code: CodeType) -> dict[str, object]:
    """Return the immutable constants that a module and its classes assign, by qualified name.

    Names that are assigned more than once are omitted.
    """
    found = _assigned(code, "")
    for name, inner in qualified_codes(code):
        is_class = not inner.co_flags & inspect.CO_OPTIMIZED and "<" not in name
        found |= _assigned(inner, f"{name}.") if is_class else {}
    return found


def _assigned(code: CodeType, within: str) -> dict[str, object]:
    constants: dict[str, object] = {}
    stored: set[str] = set()
    loaded: tuple[object, ...] = ()
    for each in dis.get_instructions(code):
        if each.opname == "EXTENDED_ARG":
            continue
        if each.opname == "STORE_NAME":
            name = f"{within}{each.argval}"
            constants.pop(name, None)
            if name not in stored and loaded and is_immutable(loaded[0]):
                constants[name] = loaded[0]
            stored.add(name)
        loaded = (each.argval,) if each.opname in {"LOAD_CONST", "LOAD_SMALL_INT"} else ()
    return constants
