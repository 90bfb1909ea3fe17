"""The library that the agent, the client and the relay share; docs/concepts describes its protocol."""
