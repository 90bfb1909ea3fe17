"""DAP requests of the editor that are answered from what the agent has prefetched."""
