"""The debug adapter protocol as far as this project knows it: bytes and messages in, bytes and messages out, no I/O."""
