"""Patches of the messages that pydevd exchanges with debugpy's adapter."""
