"""The agent's side: the server for the processes of its node, and the table of these processes."""
