"""Listeners, waiting senders, and the relaying between the two."""
