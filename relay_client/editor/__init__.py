"""Informs an editor about its connection (waiting, interruptions, the end), and decides what it receives of the job."""
