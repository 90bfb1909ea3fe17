"""Debug settings: one model and one table, read from a function call, from arguments and from the environment."""
