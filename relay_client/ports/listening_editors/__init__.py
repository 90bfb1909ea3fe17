"""Connections from the job to editors that listen, with a `listen` launch configuration."""
