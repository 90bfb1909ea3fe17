"""Sender and listener of a hybrid connection."""
