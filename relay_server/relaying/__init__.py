"""Listeners, senders that wait for them, and the pipe between the two."""
