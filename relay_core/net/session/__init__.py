"""Drives the sans-IO tunnel session over transports that come and go."""
