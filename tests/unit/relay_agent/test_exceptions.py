"""Facts about exceptions of the job as text."""

import pytest

from relay_agent.exceptions import MAX_LENGTH, describe_exception


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("loss is nan"), "ValueError: loss is nan"),
        (ValueError("first\nsecond"), "ValueError: first"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
    ],
)
def test_one_line(error: BaseException, text: str) -> None:
    """It has the type, and the first line of the text if there is one."""
    assert text == describe_exception(error)


def test_a_long_text_is_cut() -> None:
    """However long the text is, the line has a limit."""
    assert MAX_LENGTH == len(describe_exception(ValueError("x" * 1000)))
