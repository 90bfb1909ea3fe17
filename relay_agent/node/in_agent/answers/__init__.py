"""What the agent answers to the requests of clients that concern the processes of its node."""
