"""Job side: debugpy inside the process that is debugged. Imports neither asyncio nor relay_core.net."""
