"""Byte streams between a local socket and a tunnel: the local endpoint, the seam to the peer, and what joins them."""
