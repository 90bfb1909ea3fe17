"""Requests for files on a node, and the rules for the files that an agent serves and for their names."""
