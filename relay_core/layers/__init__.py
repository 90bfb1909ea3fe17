"""What may stand between a local socket and a tunnel stream: layers that see both directions, without I/O."""
