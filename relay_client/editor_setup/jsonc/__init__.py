"""Reads and edits JSONC, the format of VS Code's files, and preserves what users wrote in them."""
