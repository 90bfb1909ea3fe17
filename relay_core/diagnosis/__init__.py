"""Checks of a connection, from its configuration to its peer, as the `doctor` commands print them."""
