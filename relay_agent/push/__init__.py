"""New source for running processes: compiled, compared with what runs, and swapped at a safe point."""
