"""Informs an editor about its connection: what it waits for, interruptions, and why a session has ended."""
