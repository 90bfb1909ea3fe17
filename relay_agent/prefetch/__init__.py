"""Agent and job side of prefetch: DAP requests that are sent to debugpy before the editor sends them."""
