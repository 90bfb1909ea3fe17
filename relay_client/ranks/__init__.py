"""What is known about a rank, as users and other programs see it: its state, its record and its changes."""
