"""Connections from the job to editors that are listening, as VS Code does with a `listen` launch configuration."""
