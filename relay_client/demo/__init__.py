"""`relay-client demo`: a debug session through a relay, entirely on this machine and without Azure."""
