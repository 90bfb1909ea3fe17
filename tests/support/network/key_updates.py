"""A TLS 1.3 client that sends records of its own making: as many key updates as a test wants (RFC 8446, 4.6.3).

OpenSSL performs the handshake and writes the client's traffic secret to a key log. With it, this module encrypts the
records that follow, because neither `ssl` nor `openssl s_client` sends thousands of key updates.
"""

from __future__ import annotations

import hashlib
import socket
import ssl
import struct
from pathlib import Path

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

from tests.support.machine.deadline import DEADLINE

__all__ = ["KEY_UPDATE_SIZE", "RecordWriter", "dial_records"]

APPLICATION_DATA, HANDSHAKE = 23, 22
KEY_UPDATE = b"\x18\x00\x00\x01\x01"
"""The message, with `update_requested`: the peer must answer it."""
KEY_UPDATE_SIZE = 5 + len(KEY_UPDATE) + 1 + 16
"""Bytes of a record with one key update."""


class RecordWriter:
    """Encrypts records with AES-256-GCM and SHA-384, after a handshake with `client_context`.

    Args:
        secret: The client's first application traffic secret.
    """

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        self._install()

    def data(self, plaintext: bytes) -> bytes:
        """Return a record with application data."""
        return self._record(plaintext, APPLICATION_DATA)

    def key_updates(self, number: int) -> bytes:
        """Return records that each change this side's keys and request the peer to do the same."""
        records = []
        for _ in range(number):
            records.append(self._record(KEY_UPDATE, HANDSHAKE))
            self._secret = _expand(self._secret, b"traffic upd", hashlib.sha384().digest_size)
            self._install()
        return b"".join(records)

    def _install(self) -> None:
        self._cipher = AESGCM(_expand(self._secret, b"key", 32))
        self._iv = int.from_bytes(_expand(self._secret, b"iv", 12), "big")
        self._sequence = 0

    def _record(self, content: bytes, kind: int) -> bytes:
        header = struct.pack("!BHH", APPLICATION_DATA, 0x0303, len(content) + 1 + 16)
        nonce = (self._iv ^ self._sequence).to_bytes(12, "big")
        self._sequence += 1
        return header + self._cipher.encrypt(nonce, content + bytes([kind]), header)


def _expand(secret: bytes, label: bytes, size: int) -> bytes:
    """HKDF-Expand-Label of RFC 8446, section 7.1, with an empty context."""
    label = b"tls13 " + label
    info = struct.pack("!HB", size, len(label)) + label + b"\x00"
    return HKDFExpand(hashes.SHA384(), size, info).derive(secret)


def dial_records(port: int, context: ssl.SSLContext, key_log: Path) -> tuple[socket.socket, RecordWriter]:
    """Perform a handshake with a server on 127.0.0.1; return the TCP connection, and what encrypts further records.

    Args:
        port: The server's.
        context: Trusts the server's certificate for localhost; it is changed to write `key_log`.
        key_log: A file of this connection alone.
    """
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.keylog_filename = str(key_log)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
    connection = socket.create_connection(("127.0.0.1", port), timeout=DEADLINE)
    try:
        while True:
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                connection.sendall(outgoing.read())
                incoming.write(connection.recv(65536))
        connection.sendall(outgoing.read())
    except BaseException:
        connection.close()
        raise
    assert tls.cipher()[0] == "TLS_AES_256_GCM_SHA384"
    log = dict(line.split(" ", 1) for line in key_log.read_text().splitlines() if not line.startswith("#"))
    return connection, RecordWriter(bytes.fromhex(log["CLIENT_TRAFFIC_SECRET_0"].split()[1]))
