"""Agent side: the process that listens on the hybrid connection and connects clients to targets."""
