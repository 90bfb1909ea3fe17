"""Answers DAP requests from the editor with responses that the agent has prefetched."""
