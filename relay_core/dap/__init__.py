"""The parts of the debug adapter protocol (DAP) that this project uses, without I/O: framing, messages, prefetch."""
