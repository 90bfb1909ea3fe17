"""The library that the agent, the client and the relay share; see its README for wire formats and threat model."""
