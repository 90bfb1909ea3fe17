"""Runs `relay-client`, also as `python -m relay_client`."""

import signal

_interrupt = signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends the imports without a traceback

from relay_client.cli import run  # noqa: E402 - see above

signal.signal(signal.SIGINT, _interrupt)

if __name__ == "__main__":
    run()
