"""The client: local ports on the laptop that lead to debuggers on remote compute."""
