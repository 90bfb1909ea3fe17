"""Masking of payloads (RFC 6455 section 5.3), with the C extension of the `websockets` package if it is available."""

from __future__ import annotations

try:
    from websockets.speedups import apply_mask
except ImportError:  # a platform without a compiled wheel: the same result, about a hundred times slower
    from websockets.utils import apply_mask

__all__ = ["apply_mask"]
