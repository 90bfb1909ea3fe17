"""Statistics of a tensor or an array, on request and with a deadline: minimum, maximum, mean and number of NaNs.

The elements are read in pieces, so that a device with little free memory suffices. NaN and infinite elements are
counted, and left out of the other figures.
"""

from __future__ import annotations

import math
from typing import Any

from relay_agent.gevent_originals import time
from relay_agent.values.deadline import TooLate, call_within
from relay_agent.values.leaves import Data, flatten
from relay_agent.values.presentation import describe
from relay_agent.values.torch_state import NotRead

__all__ = ["STATS_SECONDS", "Statistics", "compute_statistics"]

STATS_SECONDS = 5.0
"""Time limit in seconds."""
PIECE = 4 * 1024 * 1024
"""Number of elements that are converted at once."""


class Statistics:
    """Statistics whose `repr` is the text to show, because debuggers show a `repr`."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def compute_statistics(value: object, seconds: float = STATS_SECONDS) -> Statistics:
    """Return the statistics of each tensor and array in a value, one line each.

    Args:
        value: A tensor, an array, or something that contains them, such as a module.
        seconds: Time limit; if it is exceeded, the last line states this.
    """
    until = time.monotonic() + seconds
    lines: list[str] = []
    try:
        call_within(seconds, lambda: _fill(lines, value, until))
    except (TooLate, TimeoutError):
        lines.append(f"incomplete: computing the statistics took longer than {seconds:g} s")
    except NotRead as error:
        lines.append(f"incomplete: {error}")
    except Exception as error:  # noqa: BLE001 - the code of a library or a job
        lines.append(f"incomplete: {type(error).__name__}: {error}")
    return Statistics("\n".join(lines) or f"not a tensor or an array: {type(value).__name__}")


def _fill(lines: list[str], value: object, until: float) -> None:
    for leaf in flatten(value):
        if leaf.data is not None:
            what = leaf.name or describe(value) or type(value).__name__
            lines.append(f"{what}: {_line(leaf.data, until)}")


def _line(data: Data, until: float) -> str:
    """Return, for example, `min -0.5 max 3.25 mean 0.125, 2 NaN of 4,096`."""
    finite, infinite, total = 0, 0, 0.0
    low, high = math.inf, -math.inf
    for start in range(0, data.size, PIECE):
        if time.monotonic() > until:
            raise TimeoutError
        numbers: Any = data.numbers(start, min(start + PIECE, data.size))
        usable = numbers[abs(numbers) < math.inf]
        finite += len(usable)
        infinite += int((abs(numbers) == math.inf).sum())
        if len(usable):
            low, high, total = (
                min(low, float(usable.min())),
                max(high, float(usable.max())),
                total + float(usable.sum()),
            )
    counts = ((data.size - finite - infinite, "NaN"), (infinite, "infinite"))
    odd = "".join(f", {number:,} {what}" for number, what in counts if number)
    if not finite:
        return f"no finite elements{odd} of {data.size:,}"
    return f"min {low:.6g} max {high:.6g} mean {total / finite:.6g}{odd} of {data.size:,}"
