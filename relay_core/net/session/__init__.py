"""Drives the sans-IO tunnel session over successive transports."""
