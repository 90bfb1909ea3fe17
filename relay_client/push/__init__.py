"""`relay-client push`: replaces the code of running processes with new source."""
