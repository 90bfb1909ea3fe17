"""Who may listen and send: shared access signatures and JWTs against the rules."""
