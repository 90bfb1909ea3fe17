"""Layers between a local socket and a tunnel stream, sans-IO; each sees both directions."""
