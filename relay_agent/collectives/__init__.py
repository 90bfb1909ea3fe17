"""What processes know about their collective operations: torch's flight recorder, NCCL RAS, and their main threads."""
