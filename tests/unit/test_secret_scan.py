"""Facts about the scan that every test runs under."""

import logging

import pytest

from tests.support.machine import secrets


@pytest.mark.parametrize(
    "text", ["{key}", "Endpoint=sb://x;SharedAccessKey={key};EntityPath=y", "x?sig=" + "a" * 43 + "%3D"]
)
def test_the_scan_finds_keys_and_signatures(text: str) -> None:
    """A key or a token's signature in any text fails the test that wrote it."""
    with pytest.raises(AssertionError, match="was written"):
        secrets.check(text.format(key=secrets.new_key()))


def test_the_scan_sees_debug_records_of_libraries(caplog: pytest.LogCaptureFixture) -> None:
    """Records below WARNING, of loggers that are not ours, are scanned as well."""
    handler = secrets.RecordingHandler()
    logging.getLogger().addHandler(handler)
    key = secrets.new_key()
    try:
        logging.getLogger("some.library").debug("hello %s", key[:10])
    finally:
        logging.getLogger().removeHandler(handler)
    assert [f"hello {key[:10]}"] == handler.lines
