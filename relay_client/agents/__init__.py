"""Discovery of agents, their announcements, and the tunnel to each of them."""
