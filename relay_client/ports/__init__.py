"""Local ports, and what connects to them."""
