"""Job side: debugpy inside the debugged process. Imports neither asyncio nor relay_core.net."""
