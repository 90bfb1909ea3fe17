"""The side of the agent: the server for the processes of its node, and what it knows about them."""
