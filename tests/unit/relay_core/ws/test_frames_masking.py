"""Facts about the masking of payload."""

import inspect

from hypothesis import given
from hypothesis import strategies as st

from relay_core.ws.frames import apply_mask

masks = st.binary(min_size=4, max_size=4)


@given(st.binary(max_size=200), masks)
def test_each_byte_is_masked_by_one_of_four(data: bytes, mask: bytes) -> None:
    """Byte i of the payload is combined with byte i modulo 4 of the key (RFC 6455 section 5.3)."""
    assert bytes(byte ^ mask[index % 4] for index, byte in enumerate(data)) == apply_mask(data, mask)


def test_the_compiled_function_is_used() -> None:
    """`websockets.speedups.apply_mask` is there, compiled; without it masking is a hundred times slower."""
    assert inspect.isbuiltin(apply_mask)
