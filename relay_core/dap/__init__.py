"""The parts of the Debug Adapter Protocol (DAP) that this project uses, without I/O: framing, messages, prefetch."""
