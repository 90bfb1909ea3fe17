"""`relay-client push`: new source for the code of running processes."""
