"""Informs an editor about its connection: what it is waiting for, interruptions, and why a session has ended."""
