"""Facts about the choice of the event loop."""

import asyncio
import gc
import logging
import sys

import pytest

from relay_core.program import run
from relay_core.program.run import log_exhaustion


async def loop_module() -> str:
    return type(asyncio.get_running_loop()).__module__.partition(".")[0]


def test_uvloop_if_it_is_installed(monkeypatch):
    """A program runs in uvloop's event loop if that is installed."""
    pytest.importorskip("uvloop", reason="uvloop is not installed")
    monkeypatch.delenv(run.VARIABLE, raising=False)
    assert "uvloop" == run.run(loop_module())


def test_asyncio_without_uvloop(monkeypatch):
    """Without uvloop, a program runs in asyncio's event loop."""
    monkeypatch.delenv(run.VARIABLE, raising=False)
    monkeypatch.setitem(sys.modules, "uvloop", None)  # its import raises ImportError
    assert "asyncio" == run.run(loop_module())


def test_asyncio_on_request(monkeypatch):
    """RELAY_EVENT_LOOP=asyncio selects asyncio's event loop, whatever is installed."""
    monkeypatch.setenv(run.VARIABLE, "asyncio")
    assert "asyncio" == run.run(loop_module())


@pytest.mark.parametrize("chosen", ["asyncio", "uvloop"])
def test_what_was_loaded_before_is_not_collected(monkeypatch, chosen):
    """The garbage collector does not examine the objects that exist when a program starts its event loop."""
    pytest.importorskip(chosen, reason=f"{chosen} is not installed")

    async def newer_objects() -> int:
        return len(gc.get_objects())

    monkeypatch.setenv(run.VARIABLE, chosen)
    gc.unfreeze()
    before = len(gc.get_objects())
    assert run.run(newer_objects()) < before / 10


CLOSED = RuntimeError("unable to perform operation on <TCPTransport closed=True>; the handler is closed")
"""uvloop's exception for an operation on a closed connection."""


async def report_four_errors() -> None:
    """Report what uvloop reports if its TLS code writes to a closed connection, and three other errors."""
    loop = asyncio.get_running_loop()
    log_exhaustion(loop)  # as programs do
    for error in (CLOSED, RuntimeError("another")):
        loop.call_exception_handler({"message": "Fatal error on SSL protocol", "exception": error})
    loop.call_exception_handler({"message": "in a callback", "exception": CLOSED})
    loop.call_exception_handler({"message": "without an exception"})


def test_tls_messages_for_closed_connections(monkeypatch, caplog):
    """A report that uvloop could not write such a message is dropped; other reports are not."""
    pytest.importorskip("uvloop", reason="uvloop is not installed")
    monkeypatch.delenv(run.VARIABLE, raising=False)
    run.run(report_four_errors())
    errors = [record.getMessage().splitlines()[0] for record in caplog.records if record.levelno >= logging.ERROR]
    assert ["Fatal error on SSL protocol", "in a callback", "without an exception"] == errors
