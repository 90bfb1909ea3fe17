"""Rank, world size and node of a process in a distributed job."""
