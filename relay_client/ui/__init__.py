"""Texts and tables for the terminal, and JSON output."""
