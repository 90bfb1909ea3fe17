"""Layers between a client's stream and debugpy, for the adapter's greeting, hung debuggers and the end of a session."""
