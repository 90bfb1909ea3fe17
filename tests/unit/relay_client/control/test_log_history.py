"""Facts about the log lines that a relay-client keeps."""

import logging

from relay_client.control.log_history import MAX_LINES, LogHistory
from relay_client.control.messages import LogLine


def test_the_last_lines_are_kept() -> None:
    """Lines of our own modules during the block, the oldest first, and no more than the limit."""
    logger = logging.getLogger("relay_client.test")
    logger.setLevel(logging.INFO)
    seen: list[LogLine] = []
    logger.warning("before")
    with LogHistory(seen.append) as history:
        for number in range(MAX_LINES + 2):
            logger.info("line %d", number)
        logging.getLogger("another.library").warning("not ours")
    logger.warning("after")
    assert [f"line {MAX_LINES}", f"line {MAX_LINES + 1}"] == [line.text for line in history.last(2)]
    assert (MAX_LINES, "line 2") == (len(history.last(10 * MAX_LINES)), history.last(MAX_LINES)[0].text)
    assert () == history.last(0)
    assert MAX_LINES + 2 == len(seen)
    logger.setLevel(logging.NOTSET)


def test_a_line_is_one_line() -> None:
    """Control characters are escaped, as on the terminal."""
    with LogHistory() as history:
        logging.getLogger("relay_core.test").warning("a\nb\x1b[31m")
    (line,) = history.last(5)
    assert ("warning", "a\\nb\\x1b[31m") == (line.level, line.text)
