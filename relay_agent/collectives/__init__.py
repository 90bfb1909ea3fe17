"""Facts about collective operations, from torch's flight recorder, NCCL RAS and the main threads of processes."""
