"""Masking of payload (RFC 6455 section 5.3), with the C code that the `websockets` package ships where it is built."""

from __future__ import annotations

try:
    from websockets.speedups import apply_mask
except ImportError:  # a platform without a compiled wheel: correct, and about a hundred times slower
    from websockets.utils import apply_mask

__all__ = ["apply_mask"]
