"""Stacks of a process's threads, collected inside the process (job side) and from outside (agent side)."""
