"""A small client of the debug adapter protocol."""
