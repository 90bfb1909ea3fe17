"""An MCP server through which a coding agent examines a job, and controls it if the user permits that."""
