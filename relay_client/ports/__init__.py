"""Local ports and their connections."""
