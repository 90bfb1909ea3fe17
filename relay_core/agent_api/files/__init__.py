"""Requests for files of a node: which ones an agent serves, and under which names."""
