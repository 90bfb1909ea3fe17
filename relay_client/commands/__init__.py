"""What the commands of relay-client do; `relay_client.cli` reads the command line and prints."""
