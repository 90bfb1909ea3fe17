"""Commands about relay-clients that are running; they need no credentials."""
