"""The local port of all ranks, with one connection to each rank."""
