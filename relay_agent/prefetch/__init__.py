"""The agent's side of prefetching: DAP requests that are sent to debugpy before the editor sends them."""
