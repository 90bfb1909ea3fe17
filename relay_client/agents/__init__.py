"""Which agents there are, what they announce, and the tunnel to each."""
