"""Commands that inspect or control running relay-clients; they need no credentials."""
