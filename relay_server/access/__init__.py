"""Authorization of listeners and senders by shared access signatures and JWTs."""
