"""What the threads of a process are doing: from inside (job side) and from outside (agent side)."""
