"""The resource monitor of `--debug-monitor`: samples processors, memory and GPUs in the agent process."""
