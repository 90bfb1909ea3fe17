"""HTTP requests that a relay forwards to a listener: their messages, and the rules for headers."""
