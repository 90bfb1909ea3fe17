"""Byte streams between a local socket and a tunnel."""
