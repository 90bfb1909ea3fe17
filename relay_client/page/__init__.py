"""The page that `relay-client --ui` serves: all nodes and ranks of the job in a web browser on this machine."""
