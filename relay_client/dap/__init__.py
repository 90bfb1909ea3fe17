"""A small client for the Debug Adapter Protocol, its connection over TCP, and facts about debugpy."""
