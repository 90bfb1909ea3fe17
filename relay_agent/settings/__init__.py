"""How a process is to be debugged: one model, read from a call, from arguments and from the environment."""
