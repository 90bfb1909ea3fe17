"""DAP requests that are answered before the editor sends them."""
