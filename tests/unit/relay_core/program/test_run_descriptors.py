"""Facts about running out of descriptors."""

import asyncio
import errno
import logging
import resource
import sys

import pytest

from relay_core.program.run import log_exhaustion, raise_descriptor_limit


async def test_one_line_instead_of_tracebacks(caplog: pytest.LogCaptureFixture) -> None:
    """However often asyncio reports that it cannot accept, one line names the cause."""
    loop = asyncio.get_running_loop()
    log_exhaustion(loop)
    for _ in range(100):
        loop.call_exception_handler({"message": "accept", "exception": OSError(errno.EMFILE, "Too many open files")})
    lines = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert ["new connections must wait: no file descriptors left. hint: raise the limit (ulimit -n)"] == lines


async def test_other_errors_are_reported_as_ever(caplog: pytest.LogCaptureFixture) -> None:
    """Any other unhandled error of the loop keeps its traceback."""
    loop = asyncio.get_running_loop()
    log_exhaustion(loop)
    loop.call_exception_handler({"message": "a callback failed", "exception": ValueError("x")})
    assert ["a callback failed"] == [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]


def test_the_soft_limit_is_raised() -> None:
    """It becomes the hard limit, or what is enough."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, before[1]))
    try:
        raise_descriptor_limit()
        assert 256 < resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_without_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows has no such limit: nothing is changed."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    monkeypatch.setitem(sys.modules, "resource", None)  # its import raises ImportError
    raise_descriptor_limit()
    assert before == resource.getrlimit(resource.RLIMIT_NOFILE)
