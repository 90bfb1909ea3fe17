"""Strangers who send TLS key updates to a relay: `python -m tests.bench.strangers PORT CA_FILE NUMBER SECONDS`.

Each dials again as soon as the relay has dropped it. The last line is JSON: how often they were dropped, and the bytes
that they sent.
"""

from __future__ import annotations

import contextlib
import json
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from relay_core.net.relay_tls import client_tls
from tests.support.network.key_updates import KEY_UPDATE_SIZE, dial_records

BURST = 100


def flood(port: int, ca_file: str, key_log: Path, end: float) -> tuple[int, int]:
    """Send key updates until the time is over; return the number of connections, and of bytes."""
    connections = sent = 0
    while time.monotonic() < end:
        key_log.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            connection, records = dial_records(port, client_tls(ca_file), key_log)
            connections += 1
            with connection:
                while time.monotonic() < end:
                    connection.sendall(records.key_updates(BURST))
                    sent += BURST * KEY_UPDATE_SIZE
    return connections, sent


def main(port: int, ca_file: str, number: int, seconds: float) -> None:
    """Let strangers attack for a time."""
    end = time.monotonic() + seconds
    with tempfile.TemporaryDirectory() as name, ThreadPoolExecutor(number) as pool:
        logs = [Path(name) / str(each) for each in range(number)]
        found = list(pool.map(lambda log: flood(port, ca_file, log, end), logs))
    print(json.dumps({"connections": sum(each for each, _ in found), "bytes": sum(sent for _, sent in found)}))


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), float(sys.argv[4]))
