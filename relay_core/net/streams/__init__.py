"""Byte streams between a local socket and a tunnel: the local endpoint, the stream interface, and the bridge."""
