"""New source for running processes: compiled, compared with the running code, and swapped at a safe point."""
