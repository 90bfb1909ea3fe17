"""Answers to DAP requests of the editor from the responses that the agent has prefetched."""
